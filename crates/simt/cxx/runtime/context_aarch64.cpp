#include "context.h"

#if !defined(SIMT_UCONTEXT) && defined(__aarch64__)

// AAPCS64: x19 to x30 and the low halves of v8 to v15 outlive a call.
asm(R"(
.text
.globl simt_switch_stack
.hidden simt_switch_stack
.type simt_switch_stack, %function
simt_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size simt_switch_stack, . - simt_switch_stack
)");

extern "C" void simt_switch_stack(void** save, void* to);

namespace simt {

void start(Context& context, char* stack, size_t bytes, void (*entry)()) {
  void** frame = reinterpret_cast<void**>(stack + bytes) - 20;
  frame[11] = reinterpret_cast<void*>(entry);  // x30, to which `ret` goes
  context.stack_pointer = frame;
}

void switch_context(Context& from, Context& to) { simt_switch_stack(&from.stack_pointer, to.stack_pointer); }

}  // namespace simt
#endif
