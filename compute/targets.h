// Selects the instruction sets for which the kernels are compiled. It must be included before all
// headers of Highway.
#pragma once

// On x86 these are AVX-512, AVX2, SSE4.2 and, for anything older, one element at a time. SSSE3
// alone would serve processors of 2006 to 2008 and cost a quarter more code.
#define HWY_DISABLED_TARGETS HWY_SSSE3

#if defined(__x86_64__)
#undef HWY_SHARED_DEFINE  // the library is not linked: see supported_targets.cpp
#endif
