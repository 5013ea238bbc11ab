// The calls that a compiler puts before every load and store under -fsanitize=thread. The interface is ThreadSanitizer's; what
// is made of it here is the check of memory.h. And the one that stands before a misaligned access under -fsanitize=alignment, UndefinedBehaviorSanitizer's.

#include "block.h"

#define HOOK extern "C" __attribute__((visibility("default")))

namespace {

using simt::Access;
using simt::Kind;

// A thread that made so many accesses in one turn may be waiting for another: let the others run.
constexpr unsigned ACCESSES_PER_TURN = 1 << 24;

thread_local unsigned accesses = 0;

void check(const void* address, size_t bytes, size_t align, Kind kind, void* caller) {
  Access access = {reinterpret_cast<uintptr_t>(address), bytes, kind, reinterpret_cast<uintptr_t>(caller), align};
  simt::Block& block = simt::block();
  block.require_stack(__builtin_frame_address(0));
  const simt::Fiber& fiber = block.running();
  std::string fault = block.memory().check(access, fiber.number);
  if (!fault.empty()) block.fail(simt::Block::name(fiber) + " " + fault);
  if (++accesses % ACCESSES_PER_TURN == 0) block.spin(false);
}

}  // namespace

#define CALLER __builtin_return_address(0)

#define ACCESS(bytes) \
  HOOK void __tsan_read##bytes(void* address) { check(address, bytes, bytes, Kind::read, CALLER); } \
  HOOK void __tsan_write##bytes(void* address) { check(address, bytes, bytes, Kind::write, CALLER); } \
  HOOK void __tsan_unaligned_read##bytes(void* address) { check(address, bytes, 1, Kind::read, CALLER); } \
  HOOK void __tsan_unaligned_write##bytes(void* address) { check(address, bytes, 1, Kind::write, CALLER); } \
  HOOK void __tsan_volatile_read##bytes(void* address) { check(address, bytes, bytes, Kind::read, CALLER); } \
  HOOK void __tsan_volatile_write##bytes(void* address) { check(address, bytes, bytes, Kind::write, CALLER); }

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

HOOK void __tsan_read_range(void* address, size_t bytes) { check(address, bytes, 1, Kind::read, CALLER); }
HOOK void __tsan_write_range(void* address, size_t bytes) { check(address, bytes, 1, Kind::write, CALLER); }
HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_vptr_update(void**, void*) {}
HOOK void __tsan_vptr_read(void**) {}

namespace {

// Whether an atomic access of this order acquires, or releases: the compiler's numbers.
bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order == __ATOMIC_SEQ_CST; }
bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_SEQ_CST; }

void load(const void* address, bool acquires) {
  simt::block().memory().load(reinterpret_cast<uintptr_t>(address), acquires, simt::block().running().number);
}

void store(const void* address, bool releases) {
  simt::block().memory().store(reinterpret_cast<uintptr_t>(address), releases, simt::block().running().number);
}

}  // namespace

// The atomics that simt/atomic.h is made of, at each size.
#define ATOMIC(bits, type) \
  HOOK type __tsan_atomic##bits##_load(const volatile type* address, int order) { \
    check(const_cast<const type*>(address), sizeof(type), sizeof(type), Kind::atomic, CALLER); \
    load(const_cast<const type*>(address), acquires(order)); \
    return *address; \
  } \
  HOOK void __tsan_atomic##bits##_store(volatile type* address, type value, int order) { \
    check(const_cast<const type*>(address), sizeof(type), sizeof(type), Kind::atomic, CALLER); \
    store(const_cast<const type*>(address), releases(order)); \
    *address = value; \
  } \
  HOOK int __tsan_atomic##bits##_compare_exchange_strong(volatile type* address, type* expected, type desired, int order, int) { \
    check(const_cast<const type*>(address), sizeof(type), sizeof(type), Kind::atomic, CALLER); \
    load(const_cast<const type*>(address), acquires(order)); \
    type old = *address; \
    bool equal = old == *expected; \
    if (equal) store(const_cast<const type*>(address), releases(order)); \
    if (equal) *address = desired; \
    *expected = old; \
    return equal; \
  }

ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

namespace {

// What the compiler tells of an access, as far as it is looked at.
struct Mismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char align_log2;
};

}  // namespace

HOOK void __ubsan_handle_type_mismatch_v1_abort(const Mismatch* of, void*) {
  simt::Block& block = simt::block();
  std::string place = std::string(of->file) + ":" + std::to_string(of->line);
  block.fail(simt::Block::name(block.running()) + " reads or writes at an address that is no multiple of " + std::to_string(1u << of->align_log2) + ", at " + place);
}
