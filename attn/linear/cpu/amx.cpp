// The kernels of linear attention for bfloat16 with AMX.
#include "attn/linear/cpu/amx/backward.h"
#include "attn/linear/cpu/amx/forward.h"

namespace attn::cpu {
namespace {

template <class Tiles>
class AmxTable {
  // Calls work(Kernel<Tiles, Map>(params, scratch)), where Map is the feature map of the parameters.
  template <template <class, class> class Kernel, class Work>
  static void with(const LinearHeadParams& params, void* scratch, const Work& work) {
    with_feature_map(FeatureMaps<Avx512ForBFloat16>(), params.map, [&](auto map) {
      using Map = decltype(map);
      if constexpr (Map::kEntrywise) work(Kernel<Tiles, Map>(params, scratch));
      else __builtin_trap();  // The registry refuses maps that are not entrywise.
    });
  }
  static float* floats(void* p) { return static_cast<float*>(p); }
  static const float* floats(const void* p) { return static_cast<const float*>(p); }

 public:
  static LinearKernels kernels(const char* name) {
    auto all = *linear_kernels_avx512(ElementType::bfloat16);
    all.name = name;
    all.scratch_size = [](const LinearHeadParams& params) {
      const auto own = AmxScratch::size(params), of_vectors = LinearScratch::size(params);
      return own > of_vectors ? own : of_vectors;
    };
    all.add_keys = [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
      with<AmxForward>(params, scratch, [&](auto&& kernel) { kernel.add_keys(begin, end, floats(s), floats(z)); });
    };
    all.add_keys_transposed = [](const LinearHeadParams& params, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
      with<AmxBackward>(params, scratch, [&](auto&& kernel) { kernel.add_keys(begin, end, floats(t), floats(z)); });
    };
    all.forward = [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
      with<AmxForward>(params, scratch, [&](auto&& kernel) { kernel.forward(begin, end, floats(s), floats(z)); });
    };
    all.read = [](const LinearHeadParams& params, int64_t begin, int64_t end, const void* s, const void* z, void* scratch) {
      with<AmxForward>(params, scratch, [&](auto&& kernel) { kernel.read(begin, end, floats(s), floats(z)); });
    };
    all.backward_queries = [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* t, void* z,
                              void* scratch) {
      with<AmxBackward>(params, scratch,
                        [&](auto&& kernel) { kernel.backward_queries(begin, end, causal, floats(t), floats(z)); });
    };
    all.add_queries = [](const LinearHeadParams& params, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
      with<AmxBackward>(params, scratch, [&](auto&& kernel) { kernel.add_queries(begin, end, floats(r), floats(y)); });
    };
    all.backward_keys = [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* r, void* y,
                           void* scratch) {
      with<AmxBackward>(params, scratch, [&](auto&& kernel) { kernel.backward_keys(begin, end, causal, floats(r), floats(y)); });
    };
    return all;
  }
};

}  // namespace

const LinearKernels* linear_kernels_amx(ElementType element) {
  if (element != ElementType::bfloat16) return nullptr;
  static const LinearKernels table = AmxTable<AmxTiles>::kernels("amx");
  return &table;
}

const LinearKernels* linear_kernels_amx_emulated() {
  static const LinearKernels table = AmxTable<EmulatedTiles>::kernels("amx-emulated");
  return &table;
}

}  // namespace attn::cpu
