// What translated kernels call. Values of PTX's types have its names here.
#pragma once

#include "tests/cuda/kernel.h"
#include "tests/cuda/ptx/arithmetic.h"
#include "tests/cuda/ptx/bits.h"
#include "tests/cuda/ptx/memory.h"
#include "tests/cuda/ptx/warp.h"
