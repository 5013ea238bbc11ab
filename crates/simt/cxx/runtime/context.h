// Switching between the stacks of fibers: a file for each processor, and a portable form.
#pragma once

#include <stddef.h>

#if !defined(SIMT_PORTABLE_CONTEXT) && (defined(__x86_64__) || defined(__aarch64__))

namespace simt {

// The saved registers lie on the suspended stack.
struct Context {
  void* stack_pointer;
};

}  // namespace simt

#else
#define SIMT_UCONTEXT
#include <ucontext.h>

namespace simt {

struct Context {
  ucontext_t state;
};

}  // namespace simt
#endif

namespace simt {

// Makes `context` start at `entry`, which never returns, on the given stack. `stack` is aligned to 16 bytes.
void start(Context& context, char* stack, size_t bytes, void (*entry)());

// Suspends the running context into `from` and resumes `to`.
void switch_context(Context& from, Context& to);

}  // namespace simt
