// How a launch from outside reaches a kernel. For every kernel of a source the harness appends
// `simt_launch_<name>`, `simt_parameters_<name>`, `simt_<name>` and `simt_cooperative_<name>` (src/rewrite.rs).
#pragma once

#include <type_traits>
#include <utility>

namespace simt {

// What a parameter takes. `bytes` is the size of the value, or of what the pointer points to (0 for void).
struct Parameter {
  enum Kind : uint32_t { floating, integer, other, pointer_to_const, pointer } kind;
  uint32_t bytes;
};

// Memory that a launch may touch: half-open, in bytes.
struct Range {
  uintptr_t begin, end;
  uint64_t writable;
};

// A launch as the C interface has it. `arguments[i]` points to the value of parameter i, as for cuLaunchKernel.
struct Launch {
  uint32_t grid[3], block[3];
  uint64_t dynamic_shared_bytes;
  uint64_t cooperative;  // whether all blocks run at once, and may wait for each other
  void** arguments;
  const Range* ranges;  // null: accesses to global memory are not checked
  uint64_t range_count;
  char* report;  // where a fault is described, NUL-terminated
  uint64_t report_bytes;
};

// As `launch` for memory that the harness knows nothing of, such as a made-up driver's: only shared memory is checked, and a
// report goes to the standard error.
int launch_anywhere(const char* kernel, void (*body)(void**), Launch launch);

// Runs the launch; 0 when every thread ended, 1 when the report says why not.
int launch(const char* kernel, void (*body)(void**), const Launch& launch);

template <class T>
constexpr Parameter parameter() {
  if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    Parameter::Kind kind = std::is_const_v<To> ? Parameter::pointer_to_const : Parameter::pointer;
    if constexpr (std::is_void_v<To>) return {kind, 0};
    else return {kind, sizeof(To)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {Parameter::floating, sizeof(T)};
  } else if constexpr (std::is_integral_v<T>) {
    return {Parameter::integer, sizeof(T)};
  } else {
    return {Parameter::other, sizeof(T)};
  }
}

template <auto kernel>
struct Kernel;

template <class... A, void (*kernel)(A...)>
struct Kernel<kernel> {
  // Writes at most `capacity` parameters, and returns how many there are.
  __attribute__((no_sanitize("thread"))) static uint32_t describe(Parameter* parameters, uint32_t capacity) {
    uint32_t count = 0;
    ((count < capacity ? (void)(parameters[count] = parameter<A>()) : void(), count++), ...);
    return count;
  }

  // Reads the arguments, which are no memory of the launch: not to be checked.
  __attribute__((no_sanitize("thread"))) static void call(void** arguments) {
    call(arguments, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... I>
  __attribute__((no_sanitize("thread"))) static void call(void** arguments, std::index_sequence<I...>) {
    (void)arguments;
    kernel(*static_cast<A*>(arguments[I])...);
  }
};

}  // namespace simt
