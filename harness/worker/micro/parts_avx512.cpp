// The parts of the kernels, compiled for AVX-512.
#include "harness/worker/micro/part_list.h"

namespace attnbench {

Parts parts_avx512() { return PartList<attn::cpu::Avx512>::all(); }

}  // namespace attnbench
