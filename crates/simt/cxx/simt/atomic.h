// Atomics. One thread runs at a time, so that a load and a store are enough; the compiler's builtins are used all the same,
// because the harness tells accesses that may meet from those that may not by them.
#pragma once

namespace simt {

// The integer that carries the bits of a T.
template <size_t bytes> struct Bits;
template <> struct Bits<2> { using type = uint16_t; };
template <> struct Bits<4> { using type = uint32_t; };
template <> struct Bits<8> { using type = uint64_t; };

template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <class T, class F>
T atomic_update(T* address, F update) {
  using B = typename Bits<sizeof(T)>::type;
  B* bits = reinterpret_cast<B*>(address);
  B old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(bits, &old, bit_cast<B>(update(bit_cast<T>(old))), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return bit_cast<T>(old);
}

}  // namespace simt

#define SIMT_ATOMIC(name, type, expression)                                                    \
  inline type name(type* address, type value) {                                                \
    return simt::atomic_update(address, [value](type old) -> type { return (expression); });   \
  }

#define SIMT_ATOMICS(type)                                  \
  SIMT_ATOMIC(atomicAdd, type, old + value)                 \
  SIMT_ATOMIC(atomicMin, type, value < old ? value : old)   \
  SIMT_ATOMIC(atomicMax, type, value > old ? value : old)   \
  SIMT_ATOMIC(atomicAnd, type, old & value)                 \
  SIMT_ATOMIC(atomicOr, type, old | value)                  \
  SIMT_ATOMIC(atomicXor, type, old ^ value)

// Sums wrap, also those of a signed type.
inline int atomicAdd(int* address, int value) {
  return simt::atomic_update(address, [value](int old) { return (int)((unsigned)old + (unsigned)value); });
}
inline int atomicSub(int* address, int value) {
  return simt::atomic_update(address, [value](int old) { return (int)((unsigned)old - (unsigned)value); });
}
SIMT_ATOMIC(atomicMin, int, value < old ? value : old)
SIMT_ATOMIC(atomicMax, int, value > old ? value : old)
SIMT_ATOMIC(atomicAnd, int, old & value)
SIMT_ATOMIC(atomicOr, int, old | value)
SIMT_ATOMIC(atomicXor, int, old ^ value)
SIMT_ATOMICS(unsigned)
SIMT_ATOMIC(atomicSub, unsigned, old - value)
SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
SIMT_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
SIMT_ATOMICS(unsigned long long)
SIMT_ATOMIC(atomicAdd, float, old + value)
SIMT_ATOMIC(atomicAdd, double, old + value)

#undef SIMT_ATOMICS
#undef SIMT_ATOMIC

// A thread that waits for another spins on one of these two: they let the others run.
#define SIMT_EXCHANGES(type)                                                                           \
  inline type atomicExch(type* address, type value) {                                                  \
    type old = simt::atomic_update(address, [value](type) { return value; });                          \
    simt::yield(memcmp(&old, &value, sizeof old) != 0);                                                  \
    return old;                                                                                        \
  }

#define SIMT_COMPARE_EXCHANGES(type)                                                                                      \
  inline type atomicCAS(type* address, type expected, type value) {                                                      \
    type old = simt::atomic_update(address, [expected, value](type old) { return old == expected ? value : old; });       \
    simt::yield(old == expected && old != value);                                                                        \
    return old;                                                                                                          \
  }

SIMT_EXCHANGES(int)
SIMT_EXCHANGES(unsigned)
SIMT_EXCHANGES(unsigned long long)
SIMT_EXCHANGES(float)
SIMT_COMPARE_EXCHANGES(int)
SIMT_COMPARE_EXCHANGES(unsigned)
SIMT_COMPARE_EXCHANGES(unsigned long long)
SIMT_COMPARE_EXCHANGES(unsigned short)

#undef SIMT_COMPARE_EXCHANGES
#undef SIMT_EXCHANGES

// nvcc's atomic loads and stores with an order and a scope, as threads of several blocks meet at them. A thread that waits loads again and
// again: it lets the others run.
enum { __NV_ATOMIC_RELAXED, __NV_ATOMIC_ACQUIRE = 2, __NV_ATOMIC_RELEASE = 3 };
enum { __NV_THREAD_SCOPE_BLOCK = 2, __NV_THREAD_SCOPE_DEVICE = 4 };

template <class T>
T __nv_atomic_load_n(T* address, int order, int scope = __NV_THREAD_SCOPE_DEVICE) {
  (void)scope;
  simt::yield(false);
  return order == __NV_ATOMIC_ACQUIRE ? __atomic_load_n(address, __ATOMIC_ACQUIRE) : __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <class T>
void __nv_atomic_store_n(T* address, T value, int order, int scope = __NV_THREAD_SCOPE_DEVICE) {
  (void)scope;
  if (order == __NV_ATOMIC_RELEASE) __atomic_store_n(address, value, __ATOMIC_RELEASE);
  else __atomic_store_n(address, value, __ATOMIC_RELAXED);
}
