// Linear attention on the CPU, one (batch entry, head) and one stretch of positions at a time: what each instruction set
// provides, and linear.cpp puts together.
//
// With φ = φ(q), κ = φ(k), g′ = gradient / normalizer and δ the gradient of the normalizer:
//   S = Σ κ_j v_jᵀ [F,M]   Z = Σ κ_j [F]            over the keys before the stretch, read by the forward
//   T = Sᵀ [M,F]                                    the same, as the gradient of φ reads it
//   R = Σ φ_i g′_iᵀ [F,M]  Y = Σ δ_i φ_i [F]        over the queries after the stretch, read by the gradients of κ and v
// A map with scales has φ = e^c·φ̃, where e^c may be beyond float32. Matrix and vector of a state are then relative to e^scale, a
// number behind the vector: no smaller than that of any term in it, kNoScale in an empty state. A term of S, T, Z has its key's
// scale c, one of R and Y has minus the scale of the state that its query saw.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

// Rows of states and buffers are padded to a multiple of it, with zeros.
constexpr int64_t kPadding = 16;
constexpr int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }

// As attn/linear/feature_map.h has them.
enum class LinearFeatures { elu, elu01, relu, taylor, polynomial2, favor };

constexpr bool has_scales(LinearFeatures map) { return map == LinearFeatures::favor; }
constexpr float kNoScale = -1e30f;  // finite, so that differences are; e to any difference from it is 0

enum class Element { float32, float64, bfloat16 };

// Internal to each file: those of vector kernels are compiled for other processors.
namespace {
template <class Kernels>
constexpr const Kernels* by_element(Element element, const Kernels* float32, const Kernels* bfloat16, const Kernels* float64) {
  if (element == Element::float64) return float64;
  return element == Element::bfloat16 ? bfloat16 : float32;
}
}  // namespace

// Rows of [T,dim], elements of a row side by side.
struct Rows {
  void* data = nullptr;
  int64_t stride = 0;  // in elements
};

struct LinearHead {
  LinearFeatures features;
  int64_t head_dim, feature_count, value_dim;  // D, F, M
  int64_t visible_keys;                        // keys from here on are hidden
  float epsilon;
  Rows q, k, v, output, gradient, q_gradient, k_gradient, v_gradient;
  // In the sums' type. With scales, the normalizers are [N,2]: relative to the scales of query and state, and the state's.
  void* normalizer;                   // [N]: φ·Z + ε
  void* normalizer_gradient;          // [N]: δ
  const void* projection;             // of maps with directions, over D^¼: [F, padded D]
  const void* projection_transposed;  // [D, padded F]
};

// How many numbers a state takes: the matrix, the vector, and the scale with room to keep the next state aligned.
constexpr int64_t state_size(const LinearHead& h) {
  return padded(h.feature_count) * (padded(h.value_dim) + 1) + (has_scales(h.features) ? kPadding : 0);
}

// States and scratch are of the sums' type: float32, or float64 for float64 elements. Positions are begin ≤ i < end.
struct LinearKernels {
  const char* name;  // as in records: "avx512"
  int64_t (*scratch_size)(const LinearHead&);
  // S or T and Z of more keys.
  void (*add_keys)(const LinearHead&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  void (*add_keys_transposed)(const LinearHead&, int64_t begin, int64_t end, void* t, void* z, void* scratch);
  // Causal: writes outputs and normalizers, and takes the stretch's keys into S and Z.
  void (*forward)(const LinearHead&, int64_t begin, int64_t end, void* s, void* z, void* scratch);
  // The same for queries that see all of S and Z, which stay.
  void (*read)(const LinearHead&, int64_t begin, int64_t end, const void* s, const void* z, void* scratch);
  // The gradient of q, and δ; causal: takes the stretch's keys into T and Z.
  void (*backward_queries)(const LinearHead&, int64_t begin, int64_t end, bool causal, void* t, void* z, void* scratch);
  // R and Y of more queries.
  void (*add_queries)(const LinearHead&, int64_t begin, int64_t end, void* r, void* y, void* scratch);
  // The gradients of k and v, from R and Y; causal: takes the stretch's queries into both, the last position first.
  void (*backward_keys)(const LinearHead&, int64_t begin, int64_t end, bool causal, void* r, void* y, void* scratch);
  // One token of decoding: row 0 of k and v into S [F,M] and Z [F] with its scale, without padding, then row 0 of the output for
  // q.
  void (*step)(const LinearHead&, void* s, void* z, void* scratch);
};

// Null where this build has no such kernels. float32 and bfloat16.
#ifdef __x86_64__
const LinearKernels* linear_kernels_avx512(Element element);
const LinearKernels* linear_kernels_avx2(Element element);
#else
inline const LinearKernels* linear_kernels_avx512(Element) { return nullptr; }
inline const LinearKernels* linear_kernels_avx2(Element) { return nullptr; }
#endif
// The plain version, for every type.
const LinearKernels* linear_kernels_portable(Element element);

}  // namespace attn::kernels
