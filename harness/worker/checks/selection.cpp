// Draws the rows that are compared, as many as the reference can compute in about a second.
#include "harness/worker/checks/selection.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace attnbench {
namespace {

constexpr int64_t kMinRowsOfPair = 16;

// For every selected pair (batch entry, group of heads) the reference reads all keys in float64. Eight heads of 65,536 keys take
// about a second.
constexpr double kMaxKeys = 8 << 16;

// How many pairs (batch entry, group of heads) the reference is given: at least one.
int64_t max_pairs(const attn::Problem& p, const ReferenceNeed& need) {
  const auto heads = double(p.output_head_count()) / double(p.head_groups());  // of a group
  const auto keys = double(p.key_len) * heads, queries = double(p.query_len);
  const auto inputs = heads * queries * double(p.head_dim) + keys * double(p.head_dim + p.value_dim);
  const auto weights = (need.all_rows ? queries : double(kMinRowsOfPair)) * keys;
  // The copies of the inputs, their squares or features, and the weights in several steps; autograd keeps most of these.
  const auto bytes_of_pair = (need.with_gradients ? 8. : 4.) * double(sizeof(double)) * (inputs + weights);
  const auto read = keys * (need.all_rows ? std::max(1., queries / 1024) : 1);
  const auto fit = std::min(need.budget_bytes / std::max(bytes_of_pair, 1.), kMaxKeys / std::max(read, 1.));
  return std::max<int64_t>(1, int64_t(std::min(fit, double(p.batch * p.head_groups()))));
}

}  // namespace

Selection Selection::everything(const attn::Problem& p) {
  const auto positions = at::TensorOptions(at::kLong).device(p.device);
  return {at::arange(p.batch, positions), at::arange(p.head_groups(), positions), at::arange(p.query_len, positions),
          p.head_groups(), p.output_head_count()};
}

Selection Selection::random(const attn::Problem& p, int64_t count, uint64_t seed, const ReferenceNeed& need) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto draw = [&](int64_t total, int64_t wanted) {
    return std::get<0>(at::randperm(total, generator, at::TensorOptions(at::kLong)).narrow(0, 0, std::min(total, wanted)).sort());
  };
  const auto wanted_pairs = max_pairs(p, need);
  const auto groups = std::min(p.head_groups(), wanted_pairs);
  Selection selection{draw(p.batch, std::max<int64_t>(1, wanted_pairs / std::max<int64_t>(groups, 1))),
                      draw(p.head_groups(), groups),
                      {},
                      p.head_groups(),
                      p.output_head_count()};
  const auto pairs = std::max<int64_t>(1, selection.batch.numel() * selection.groups.numel());
  selection.rows = draw(p.query_len, std::max(kMinRowsOfPair, (count + pairs - 1) / pairs));
  selection.rows[0] = 0;
  selection.rows[-1] = p.query_len - 1;
  for (auto* index : {&selection.batch, &selection.groups, &selection.rows}) *index = index->to(p.device);
  return selection;
}

at::Tensor Selection::heads_of(int64_t heads) const {
  TORCH_INTERNAL_ASSERT(group_count > 0 && heads % group_count == 0, "a selection of ", group_count, " groups of ", heads,
                        " heads");
  const auto of_group = heads / group_count;
  return of_group == 1 ? groups : (groups.unsqueeze(1) * of_group + at::arange(of_group, groups.options())).flatten();
}

at::Tensor Selection::select_from(const at::Tensor& x) const {
  return x.index({batch.view({-1, 1}), heads_of(x.size(1)).view({1, -1})});
}

at::Tensor Selection::select_from(const at::Tensor& x, const attn::InputSpec& spec) const {
  return spec.has_batch() ? select_from(x) : x.index_select(spec.head_axis(), heads_of(x.size(spec.head_axis())));
}

CallInputs restrict_gradient(const CallInputs& inputs, const Selection& selection) {
  CallInputs restricted = inputs;
  if (!inputs.grad_output.defined()) return restricted;
  const auto batch = selection.batch.view({-1, 1, 1}), heads = selection.heads_of(inputs.grad_output.size(1)).view({1, -1, 1}),
             rows = selection.rows.view({1, 1, -1});
  restricted.grad_output = at::zeros_like(inputs.grad_output);
  restricted.grad_output.index_put_({batch, heads, rows}, inputs.grad_output.index({batch, heads, rows}));
  return restricted;
}

std::vector<Excerpt> excerpts(const CallInputs& inputs, const Results& results, const Selection& selection) {
  attn::Inputs whole;
  for (const auto& spec : attn::kInputs)
    if (const auto& x = inputs.*spec.member; x.defined())
      whole.*spec.member = selection.select_from(x.detach(), spec).to(at::kDouble);
  whole.mask = inputs.mask.select(selection.batch);
  const auto batch = inputs.q.size(0), heads = inputs.q.size(1);
  if (selection.batch.numel() < batch || selection.groups.numel() < selection.group_count)
    whole.part = attn::Part{selection.batch, selection.heads_of(heads), heads};
  const auto output = selection.select_from(results.output);
  if (!results.decoded) return {{whole, selection.rows, output.index_select(2, selection.rows)}};
  const auto first_step = whole.q.size(2) - output.size(2);
  std::vector<Excerpt> steps;
  for (int64_t i = 0; i < selection.rows.numel(); ++i) {
    const auto row = selection.rows.narrow(0, i, 1);
    steps.push_back({whole.tokens(0, row.item<int64_t>() + 1), row, output.index_select(2, row - first_step)});
  }
  return steps;
}

}  // namespace attnbench
