// Scores random rows of the outputs of several seeds against exact attention.
#include "harness/worker/checks/quality.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "attn/options.h"
#include "attn/registry.h"
#include "harness/statistics/statistics.h"
#include "harness/worker/methods/foreign_method.h"
#include "harness/worker/methods/methods.h"

namespace attnbench {
namespace {

void append(std::vector<double>& values, const at::Tensor& more) {
  const auto flat = more.to(at::kCPU, at::kDouble).contiguous().view(-1);
  const auto* const begin = flat.const_data_ptr<double>();
  values.insert(values.end(), begin, begin + flat.numel());
}

// Appends the errors and cosines of rows [R,M].
void append_scores(const at::Tensor& output, const at::Tensor& exact, std::vector<double>& errors, std::vector<double>& cosines) {
  const auto norm = exact.norm(2, -1);
  append(errors, (output - exact).norm(2, -1) / norm);
  const auto product = output.norm(2, -1) * norm;
  append(cosines, (output * exact).sum(-1) / product.masked_fill(product == 0, 1));
}

// Why the case has no quality; empty if it has one.
std::string why_not_scored(const Subject& subject) {
  const auto& method = *subject.method;
  if (subject.c.quality_seeds == 0) return "quality_seeds is 0";
  if (method.capabilities().learned)
    return method.label() + " has parameters that a model trains, and that are drawn at random here";
  return method.why_unsupported(subject.problem, attn::Protocol::forward).value_or("");
}

attn::Problem quality_problem(const Subject& subject) {
  constexpr int64_t kMaxHeads = 2;
  auto p = subject.problem;
  if (subject.source.file) return p;
  p.batch = std::min<int64_t>(p.batch, 1);
  if (!p.heads_are_shared()) p.heads = p.kv_heads = p.value_heads = std::min(p.heads, kMaxHeads);
  return p;
}

// The rows that are compared, int64 [R], ascending.
at::Tensor random_rows(const attn::Problem& p, uint64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto all = at::randperm(p.query_len, generator, at::TensorOptions(at::kLong));
  return std::get<0>(all.narrow(0, 0, std::min(kQualityRows, p.query_len)).sort()).to(p.device);
}

// Compares rows of one output. Returns false if the method names no exact attention.
bool compare_rows(const attn::AttentionMethod& method, const CallInputs& inputs, const at::Tensor& output, const at::Tensor& rows,
                  RowQualities& qualities) {
  // One head at a time, because the float64 copies of all heads together could be larger than the inputs by far.
  for (int64_t b = 0; b < output.size(0); ++b)
    for (int64_t h = 0; h < output.size(1); ++h) {
      attn::Inputs head;
      for (const auto& spec : attn::kInputs)
        if (auto x = inputs.*spec.member; x.defined()) {
          if (spec.has_batch()) x = x.narrow(0, b, 1);
          const auto axis = spec.head_axis();
          head.*spec.member = x.narrow(axis, h * x.size(axis) / output.size(1), 1).to(at::kDouble);
        }
      const auto entry = at::full({1}, b, rows.options());
      head.mask = inputs.mask.select(entry);
      head.part = attn::Part{entry, at::full({1}, h, rows.options()), output.size(1)};
      const auto exact = method.exact_attention(head, rows);
      if (!exact) return false;
      const auto key_len = head.v.size(2);
      qualities.add(output.narrow(0, b, 1).narrow(1, h, 1).index_select(2, rows).to(at::kDouble), *exact,
                    head.mask.visible_pairs(rows, head.q.size(2), key_len),
                    attn::zero_where(head.v, head.mask.hidden_keys(key_len)));
    }
  return true;
}

}  // namespace

void RowQualities::add(const at::Tensor& output, const attn::ExactAttention& exact, const at::Tensor& visible,
                       const at::Tensor& values) {
  const auto row_norms = exact.output.norm(2, -1).view(-1);
  const auto visible_keys = visible.sum(-1).view(-1).to(at::kDouble);
  const auto counted = (visible_keys > 1).logical_and(row_norms > 0).nonzero().view(-1);
  if (counted.numel() == 0) return;
  const auto rows_of = [&](const at::Tensor& x) { return x.flatten(0, 2).index_select(0, counted); };
  const auto exact_rows = rows_of(exact.output), seen = rows_of(visible).to(at::kDouble);
  const auto keys = visible_keys.index_select(0, counted);
  append_scores(rows_of(output), exact_rows, errors, cosines);
  append_scores(at::matmul(seen, values.flatten(0, 2)) / keys.unsqueeze(1), exact_rows, mean_errors, mean_cosines);
  std::vector<double> zero_cosines;
  append_scores(at::zeros_like(exact_rows), exact_rows, zero_errors, zero_cosines);
  const auto weights = rows_of(exact.weights);
  const auto effective = at::xlogy(weights, weights).sum(-1).neg().exp();
  append(effective_keys, effective);
  append(effective_shares, effective / keys);
}

void RowQualities::set_columns(Record& record) const {
  if (errors.empty()) return;
  record.set("quality_rows", int64_t(errors.size()));
  const auto set_quantiles = [&](const std::string& column, std::vector<double> values) {
    std::sort(values.begin(), values.end());
    record.set(column + "_median", quantile(values, 0.5));
    record.set(column + "_p5", quantile(values, 0.05));
    record.set(column + "_p95", quantile(values, 0.95));
  };
  set_quantiles("quality_row_error", errors);
  set_quantiles("quality_cosine", cosines);
  record.set("quality_effective_keys", median(effective_keys));
  record.set("quality_effective_share", median(effective_shares));
  record.set("quality_of_mean_row_error_median", median(mean_errors));
  record.set("quality_of_mean_cosine_median", median(mean_cosines));
  record.set("quality_of_zero_row_error_median", median(zero_errors));
}

std::string with_other_seed(const std::string& method, int64_t more) {
  auto spec = attn::MethodSpec::parse(method);
  const auto& entry = attn::find_method(spec.name);
  const auto declared = std::find_if(entry.options.begin(), entry.options.end(), [](const auto& option) {
    return option.name == "seed" && std::holds_alternative<int64_t>(option.default_value);
  });
  if (declared == entry.options.end() || more == 0) return method;
  const auto seed = attn::Options(spec.name, entry.options, spec.options).integer("seed");
  std::erase_if(spec.options, [](const auto& option) { return option.first == "seed"; });
  spec.options.emplace_back("seed", std::to_string(seed <= declared->max - more ? seed + more : seed - more));
  auto text = spec.name;
  for (const auto& [name, value] : spec.options) text += (text == spec.name ? ":" : ",") + name + "=" + value;
  return text;
}

bool measure_quality(const Subject& subject, Record& record) {
  const at::NoGradGuard no_grad;
  if (const auto reason = why_not_scored(subject); !reason.empty()) {
    record.set("quality_not_scored", reason);
    return true;
  }
  const auto range = subject.device->range("quality");
  const auto problem = quality_problem(subject);
  RowQualities qualities;
  std::vector<double> medians;
  auto method = subject.method;
  auto spec = subject.c.method;
  for (int64_t i = 0; i < subject.c.quality_seeds; ++i) {
    if (auto other = with_other_seed(subject.c.method, i); other != spec) {
      spec = std::move(other);
      method = make_method(spec, subject.context);
    }
    if (auto* const other = foreign(method.get())) set_up(*other, problem, attn::Protocol::forward, record);
    const auto seed = subject.seed() + uint64_t(i);
    const auto inputs = make_inputs(problem, seed, subject.source);
    const auto output = method->forward(inputs);
    if (!at::isfinite(output).all().item<bool>()) {
      record.set_failed(kind::invalid, "NaN or infinity in the results of the seed " + std::to_string(seed));
      return false;
    }
    const auto before = qualities.count();
    if (!compare_rows(*method, inputs, output, random_rows(problem, seed), qualities)) {
      record.set("quality_not_scored", subject.method->label() + " names no attention that it approximates");
      return true;
    }
    const std::vector<double> of_seed(qualities.errors.begin() + std::ptrdiff_t(before), qualities.errors.end());
    if (!of_seed.empty()) medians.push_back(median(of_seed));
  }
  qualities.set_columns(record);
  if (medians.empty()) record.set("quality_not_scored", "no row sees two keys or more");
  else record.set("quality_seed_row_errors", medians);
  return true;
}

}  // namespace attnbench
