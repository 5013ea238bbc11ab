// The runtime as one translation unit: it is compiled into every library of kernels.
#include "runtime/block.cpp"
#include "runtime/context_aarch64.cpp"
#include "runtime/context_portable.cpp"
#include "runtime/context_x86_64.cpp"
#include "runtime/exchange.cpp"
#include "runtime/instrumentation.cpp"
#include "runtime/launch.cpp"
#include "runtime/memory.cpp"
