// Counts the operations and the memory of each step of LSH attention.
#include "attn/lsh/cost.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

// The quantities that the formulas below use.
struct Sizes {
  double tokens;   // positions of all batch entries and heads
  double places;   // tokens · rounds
  double slots;    // places, with the last chunk of each round padded to its full size
  double keys;     // the keys of two chunks, with which a query is compared in a round
  double columns;  // columns of the rotation of one round
  double dim, value_dim;
  double accumulator_bytes;  // of one number in the accumulator dtype

  Sizes(const LshSettings& s, const Problem& p)
      : tokens(double(p.batch) * double(p.heads) * double(p.query_len)),
        places(tokens * double(s.rounds)),
        keys(2 * double(std::min(s.chunk, p.query_len))),
        dim(double(p.head_dim)),
        value_dim(double(p.value_dim)),
        accumulator_bytes(std::max(4.0, p.element_bytes())) {
    const double chunk = keys / 2;
    slots = places / double(p.query_len) * std::ceil(double(p.query_len) / chunk) * chunk;
    const auto buckets = s.buckets_for(p.query_len);
    const auto factors = bucket_factors_of(buckets);
    columns = factors ? double((*factors)[0] + (*factors)[1]) / 2 : double(buckets) / 2;
  }
};

double flops_of(const Sizes& n, bool backward) {
  const double hash = n.places * n.columns * (2 * n.dim + 2);
  const double logits = n.slots * n.keys * 2 * n.dim, values = n.slots * n.keys * 2 * n.value_dim;
  const double exponentials = n.slots * n.keys * 5;
  const double forward = hash + logits + values + exponentials;
  return backward ? forward + 3 * logits + 2 * values + 2 * exponentials : forward;
}

// The peak memory of the composition beside its inputs, in bytes. The terms count the tensors of composed.cpp that exist at the
// same time.
double composed_bytes(const Sizes& n, const Problem& p, bool backward) {
  const double hashing = 8 * n.places * n.columns + std::max(8 * n.tokens * n.dim, 48 * n.places);
  // The tensors of Places, then those of Tokens in the accumulator dtype.
  const double tokens = 24 * n.slots + 16 * n.places + n.accumulator_bytes * n.tokens * (2 * n.dim + n.value_dim);
  const double hidden = p.causal ? n.slots * n.keys : 0;
  if (!backward) {
    // The weights, together first with queries and keys, later with values and outputs.
    const double chunks = n.accumulator_bytes * n.slots * (n.keys + 3 * std::max(n.dim, n.value_dim)) + hidden;
    return std::max(hashing, tokens + chunks + 16 * n.slots);
  }
  // The weights exist together either with the products that grad_v sums up, or with the gradients of the logits.
  const double with_products = n.slots * (n.keys + 3 * n.dim + 4 * n.value_dim) + 2 * n.tokens * n.value_dim;
  const double with_logits = n.slots * (2 * n.keys + 3 * n.dim + 3 * n.value_dim) + n.tokens * n.value_dim;
  const double widened = p.element_bytes() < n.accumulator_bytes ? n.tokens * n.value_dim : 0;
  return p.output_bytes() + 24 * n.places + tokens + 16 * n.slots + hidden +
         n.accumulator_bytes * (std::max(with_products, with_logits) + widened);
}

}  // namespace

Cost lsh_cost(const LshSettings& settings, const Problem& p, bool backward, const LshImplementation* implementation) {
  const Sizes n(settings, p);
  const double tensors = lsh_input_bytes(p) + p.output_bytes();
  const double inputs = lsh_input_bytes(p) + (backward ? p.output_bytes() : 0);
  const double working = implementation ? implementation->peak_bytes(p, settings, backward) : composed_bytes(n, p, backward);
  return {.flops = flops_of(n, backward),
          .min_bytes = backward ? 2 * tensors + lsh_input_bytes(p) : tensors,
          .peak_bytes = inputs + working};
}

}  // namespace attn
