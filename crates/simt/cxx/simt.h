// The CUDA C++ language for a host compiler. The harness includes this before a kernel source; the parts say what exists.
//
// A kernel is compiled as it stands. Two keywords are left for the harness to rewrite after preprocessing, because no
// macro can: `__global__`, by which it finds the kernels, and `__shared__`, which becomes memory of the block.
#pragma once

#include "simt/language.h"
#include "simt/vector.h"

#include "simt/atomic.h"
#include "simt/export.h"
#include "simt/math.h"
#include "simt/sync.h"
#include "simt/warp.h"
