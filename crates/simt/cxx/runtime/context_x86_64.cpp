#include "context.h"

#if !defined(SIMT_UCONTEXT) && defined(__x86_64__)

// System V: rbx, rbp and r12 to r15 outlive a call; every other register is the caller's to save.
asm(R"(
.text
.globl simt_switch_stack
.hidden simt_switch_stack
.type simt_switch_stack, @function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack, . - simt_switch_stack
)");

extern "C" void simt_switch_stack(void** save, void* to);

namespace simt {

void start(Context& context, char* stack, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + bytes);
  // `ret` takes the entry off an address that is a multiple of 16, which leaves the stack as a call would have.
  top[-2] = reinterpret_cast<void*>(entry);
  context.stack_pointer = top - 8;
}

void switch_context(Context& from, Context& to) { simt_switch_stack(&from.stack_pointer, to.stack_pointer); }

}  // namespace simt
#endif
