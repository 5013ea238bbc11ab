// Stands in for the header of the same name in a CUDA toolkit.
#pragma once
#include "../simt/half.h"
