// The parts of the kernels, compiled for AVX2.
#include "harness/worker/micro/part_list.h"

namespace attnbench {

Parts parts_avx2() { return PartList<attn::cpu::Avx2>::all(); }

}  // namespace attnbench
