// Draws each tensor in parts with generators of their own, so that the numbers do not depend on the threads.
#include "harness/worker/inputs/inputs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "harness/schema/file_search.h"

namespace attnbench {
namespace {

// Each part of this many elements of a tensor has a generator of its own, so that several threads can draw one tensor.
constexpr int64_t kPartSize = 1 << 20;

constexpr std::pair<const char*, InputDistribution> kInputDistributions[] = {
    {"normal", InputDistribution::normal}, {"clustered", InputDistribution::clustered}, {"repeated", InputDistribution::repeated},
    {"offset", InputDistribution::offset}, {"scaled", InputDistribution::scaled},       {"outliers", InputDistribution::outliers},
};
constexpr std::string_view kFile = "file:";

constexpr int64_t kCentres = 16;
constexpr double kSpread = 0.1;  // standard deviation around a centre
constexpr int64_t kRepeatedBlock = 64;
constexpr int64_t kOutlierColumns = 16, kOutlierRows = 100;  // every 16th column and every 100th row is larger
constexpr double kOutlierFactor = 30;

// What is drawn from one seed, besides tensors other than q, k and v. Each has generators of its own. Those with negative numbers
// are drawn only for some distributions.
enum Draw : int64_t {
  q_draw = 0,
  k_draw = 1,
  v_draw = 2,
  grad_output_draw = 3,
  centre_draw = -1,
  q_cluster_draw = -2,
  k_cluster_draw = -3,
  change_draw = -4
};
uint64_t seed_of(Draw draw, uint64_t seed) { return draw >= 0 ? 4 * seed + uint64_t(draw) : ~(4 * seed + uint64_t(-1 - draw)); }

// The seed of a tensor other than q, k and v. Each has generators of its own, so that its numbers do not depend on which other
// tensors a method reads.
uint64_t seed_of(const char* further_tensor, uint64_t seed) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const auto* letter = further_tensor; *letter != '\0'; ++letter) hash = (hash ^ uint8_t(*letter)) * 1099511628211u;
  return hash ^ (seed * 0xD1B54A32D192ED03u);
}

// Half-precision inputs are drawn in float32 and rounded.
at::ScalarType drawn_dtype(const attn::Problem& problem) { return problem.dtype == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor drawn(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed,
                 void (*draw)(const at::Tensor& part, const at::Generator& generator)) {
  const auto flat = at::empty(shape, dtype).view(-1);
  at::parallel_for(0, (flat.numel() + kPartSize - 1) / kPartSize, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed * 0x9E3779B97F4A7C15u + uint64_t(i));
      draw(flat.narrow(0, i * kPartSize, std::min(kPartSize, flat.numel() - i * kPartSize)), generator);
    }
  });
  return flat.view(shape);
}

at::Tensor uniform(const std::vector<int64_t>& shape, uint64_t seed) {
  return drawn(shape, at::kDouble, seed,
               [](const at::Tensor& x, const at::Generator& generator) { x.uniform_(0, 1, generator); });
}

at::Tensor normal(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed) {
  return drawn(shape, dtype, seed, [](const at::Tensor& x, const at::Generator& generator) { x.normal_(0, 1, generator); });
}

// Draws rows [B,H,length,D] around the centres [B,H,16,D].
at::Tensor clustered(const at::Tensor& centres, int64_t length, uint64_t noise_seed, uint64_t cluster_seed) {
  const std::vector<int64_t> shape = {centres.size(0), centres.size(1), length, centres.size(3)};
  const auto places = uniform({shape[0], shape[1], length}, cluster_seed);
  const auto shares = at::arange(1, kCentres + 1, at::kDouble).reciprocal();
  // The bounds leave out the last one, which would be 1 up to rounding: a number above it would belong to no cluster.
  const auto bounds = (shares.cumsum(0) / shares.sum()).narrow(0, 0, kCentres - 1).contiguous();
  const auto cluster = at::searchsorted(bounds, places).unsqueeze(3).expand(shape);
  return normal(shape, centres.scalar_type(), noise_seed)
      .mul_(kSpread)
      .add_(centres.gather(2, cluster))
      .div_(std::sqrt(1 + kSpread * kSpread));
}

// Draws q or k [B,heads,length,D] in drawn_dtype().
at::Tensor draw_rows(const attn::Problem& p, int64_t heads, int64_t length, InputDistribution distribution, uint64_t seed,
                     Draw draw, Draw cluster_draw) {
  const auto rows = [&](int64_t of_heads, int64_t count, Draw which) {
    return normal({p.batch, of_heads, count, p.head_dim}, drawn_dtype(p), seed_of(which, seed));
  };
  switch (distribution) {
    case InputDistribution::clustered:
      return clustered(rows(p.head_groups(), kCentres, centre_draw).repeat_interleave(heads / p.head_groups(), 1), length,
                       seed_of(draw, seed), seed_of(cluster_draw, seed));
    case InputDistribution::repeated:
      return rows(heads, kRepeatedBlock, draw).index_select(2, at::arange(length).remainder(kRepeatedBlock));
    default: return rows(heads, length, draw);
  }
}

// Draws v or the gradient of the output, [B,heads,length,M], in drawn_dtype().
at::Tensor draw_values(const attn::Problem& p, int64_t heads, int64_t length, uint64_t seed, Draw draw) {
  return normal({p.batch, heads, length, p.value_dim}, drawn_dtype(p), seed_of(draw, seed));
}

// Gives the columns of x [B,H,length,C] means. `places` [B,H,C] are uniform between 0 and 1. If there are three heads or more,
// all entries of q are far below zero in the last one, where features such as elu(x) + 1 are small and still count.
void add_means(const at::Tensor& x, const at::Tensor& places, Draw draw) {
  constexpr int64_t kHeadsWithLowQueries = 3;
  constexpr double kLowMean = 18;
  const auto signed_places = places.mul(2).sub_(1).unsqueeze(2);
  if (draw == q_draw && x.size(1) >= kHeadsWithLowQueries) x.select(1, -1).sub_(kLowMean);
  if (draw == q_draw || draw == k_draw) x.add_(signed_places.sign());
  else x.add_(signed_places.mul_(draw == v_draw ? 100 : 1));
}

// Gives each head of x [B,H,length,C] a scale. `places` [B,H] are uniform between 0 and 1.
void scale_heads(const at::Tensor& x, const at::Tensor& places, Draw draw) {
  const auto min = std::log(1e-3), max = std::log(draw == q_draw || draw == k_draw ? 30 : 1e3);
  x.mul_(places.mul(max - min).add_(min).exp_().unsqueeze(2).unsqueeze(3));
}

void add_outliers(const at::Tensor& x, Draw draw) {
  x.slice(3, draw, std::nullopt, kOutlierColumns).mul_(kOutlierFactor);
  x.slice(2, 7 * draw, std::nullopt, kOutlierRows).mul_(kOutlierFactor);
}

// Changes a standard normal tensor in place if the distribution asks for it. q and k get the same means.
at::Tensor changed(const at::Tensor& x, InputDistribution distribution, uint64_t seed, Draw draw) {
  const bool as_q = draw == k_draw && distribution == InputDistribution::offset;
  const auto place_seed = seed_of(change_draw, 4 * seed + uint64_t(as_q ? q_draw : draw));
  if (distribution == InputDistribution::offset) add_means(x, uniform({x.size(0), x.size(1), x.size(3)}, place_seed), draw);
  if (distribution == InputDistribution::scaled) scale_heads(x, uniform({x.size(0), x.size(1)}, place_seed), draw);
  if (distribution == InputDistribution::outliers) add_outliers(x, draw);
  return x;
}

// The mean of -log(1/(1 + e^-x)) of a standard normal x, 0.806.
constexpr double kMeanOfLogSigmoid = 0.8;

// Draws a tensor other than q, k and v. The distributions of inputs do not change it, since they could make it invalid.
at::Tensor draw_further(const attn::Problem& p, const attn::InputSpec& spec, uint64_t seed, const InputSource& source) {
  const auto x = normal(spec.sizes(p), drawn_dtype(p), seed_of(spec.name, seed));
  switch (spec.draw) {
    case attn::InputDraw::normal: return x;
    case attn::InputDraw::log_decay: return at::log_sigmoid(x).div_(kMeanOfLogSigmoid * source.decay_positions);
    case attn::InputDraw::unit_interval: return at::sigmoid(x);
    case attn::InputDraw::first_of_keys: break;  // It is a view of k and is not drawn.
  }
  TORCH_INTERNAL_ASSERT(false, "unknown draw of ", spec.name);
}

at::Tensor to_dtype_and_device(const attn::Problem& p, const attn::InputSpec& spec, const at::Tensor& x) {
  return x.to(at::TensorOptions(spec.dtype(p.dtype)).device(p.device));
}
at::Tensor to_dtype_and_device(const attn::Problem& p, const at::Tensor& x) {
  return x.to(at::TensorOptions(p.dtype).device(p.device));
}

}  // namespace

InputDistribution parse_input_distribution(const std::string& name) {
  for (const auto& [known, distribution] : kInputDistributions)
    if (name == known) return distribution;
  TORCH_CHECK_VALUE(false, "inputs = '", name, "', expected normal, clustered, repeated, offset, scaled, outliers or file:PATH");
}

InputSource InputSource::of(const Case& c, std::vector<attn::InputSpec> tensors, const WorkerContext& context) {
  InputSource source;
  source.concentration = c.concentration;
  source.decay_positions = c.decay_positions;
  // Without sinks none are read from a file, and with them a file must hold them.
  const auto is_sinks = [](const attn::InputSpec& spec) { return spec.member == &attn::Inputs::sinks; };
  if (!c.sinks) std::erase_if(tensors, is_sinks);
  for (auto& spec : tensors) spec.required = spec.required || is_sinks(spec);
  source.tensors = std::move(tensors);
  if (c.inputs.starts_with(kFile))
    source.file = std::make_shared<InputFile>(find_in_folders(context.folders, c.inputs.substr(kFile.size())), source.tensors);
  else source.distribution = parse_input_distribution(c.inputs);
  return source;
}

namespace {

// Whether a tensor is a view of the keys. A problem with longer values is refused by the methods that take such a view, whatever
// its values are.
bool is_first_of_keys(const attn::InputSpec& spec, const attn::Problem& p) {
  return spec.draw == attn::InputDraw::first_of_keys && size_of_axis(spec.shape[3], p) <= p.head_dim;
}

CallInputs drawn_inputs(const attn::Problem& p, uint64_t seed, const InputSource& source) {
  const auto distribution = source.distribution;
  CallInputs inputs;
  const auto finished = [&](const at::Tensor& x, Draw draw) {
    const auto scaled = changed(x, distribution, seed, draw);
    return to_dtype_and_device(p, draw == q_draw && source.concentration != 1 ? scaled.mul_(source.concentration) : scaled);
  };
  inputs.q = finished(draw_rows(p, p.heads, p.query_len, distribution, seed, q_draw, q_cluster_draw), q_draw);
  const auto reads_k = [](const attn::InputSpec& spec) { return spec.member == &attn::Inputs::k; };
  if (std::any_of(source.tensors.begin(), source.tensors.end(), reads_k))
    inputs.k = finished(draw_rows(p, p.key_head_count(), p.key_len, distribution, seed, k_draw, k_cluster_draw), k_draw);
  const auto values_are_keys = std::any_of(source.tensors.begin(), source.tensors.end(),
                                           [&](const attn::InputSpec& spec) { return is_first_of_keys(spec, p); });
  if (!values_are_keys) inputs.v = finished(draw_values(p, p.value_head_count(), p.key_len, seed, v_draw), v_draw);
  for (const auto& spec : source.tensors)
    if (auto& x = inputs.*spec.member; !x.defined() && spec.is_part_of(p) && !is_first_of_keys(spec, p))
      x = to_dtype_and_device(p, spec, draw_further(p, spec, seed, source));
  inputs.ill_conditioned = distribution == InputDistribution::offset || distribution == InputDistribution::scaled ||
                           distribution == InputDistribution::outliers;
  return inputs;
}

CallInputs inputs_of_file(const attn::Problem& p, const InputSource& source) {
  CallInputs inputs;
  static_cast<attn::Inputs&>(inputs) = source.file->read(p);
  if (source.concentration != 1) inputs.q = inputs.q.to(drawn_dtype(p)).mul_(source.concentration);
  for (const auto& spec : source.tensors) {
    auto& x = inputs.*spec.member;
    if (!x.defined()) continue;
    x = to_dtype_and_device(p, spec, x);
    TORCH_CHECK_VALUE(at::isfinite(x).all().item<bool>(),
                      "the file of the inputs holds numbers that dtype = ", attn::dtype_name(p.dtype), " cannot hold");
  }
  return inputs;
}

}  // namespace

CallInputs make_inputs(const attn::Problem& p, uint64_t seed, const InputSource& source) {
  p.validate();
  auto inputs = source.file ? inputs_of_file(p, source) : drawn_inputs(p, seed, source);
  for (const auto& spec : source.tensors) {
    if (!is_first_of_keys(spec, p)) continue;
    auto& x = inputs.*spec.member;
    const auto view = inputs.k.narrow(3, 0, size_of_axis(spec.shape[3], p));
    TORCH_CHECK_VALUE(!source.file || at::equal(x, view), "the file's ", spec.name, " differs from the first ", view.size(3),
                      " entries of its k, which the method takes as ", spec.name);
    x = view;
  }
  // Rounding a large logit changes its weight by much.
  inputs.ill_conditioned = inputs.ill_conditioned || source.file || source.concentration > 1;
  inputs.mask = attn::Mask::from(p, at::make_generator<at::CPUGeneratorImpl>(seed));
  return inputs;
}

CallInputs make_inputs_with_gradient(const attn::Problem& p, uint64_t seed, const InputSource& source) {
  auto inputs = make_inputs(p, seed, source);
  for (const auto& spec : source.tensors)
    if (const auto& x = inputs.*spec.member; x.defined() && spec.differentiable) x.set_requires_grad(true);
  const auto gradient = draw_values(p, p.output_head_count(), p.query_len, seed, grad_output_draw);
  inputs.grad_output = to_dtype_and_device(p, changed(gradient, source.distribution, seed, grad_output_draw));
  return inputs;
}

}  // namespace attnbench
