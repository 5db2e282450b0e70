// Tests of what mla demands of its inputs. The contract tests hold its outputs and its state.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attn/registry.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;

Problem latent_problem(int64_t length = 5) {
  auto p = problem_of({length, length, 12, 8}, at::kFloat, Masking::causal, /*batch=*/2, /*heads=*/6);
  p.kv_heads = 1;
  return p;
}

TEST(LatentAttention, ValuesAreAViewOfTheFirstEntriesOfTheKeys) {
  const auto method = make_method("mla");
  const auto inputs = make_inputs(*method, latent_problem(), Protocol::forward, 1);
  EXPECT_EQ(inputs.v.data_ptr(), inputs.k.data_ptr());
  EXPECT_TRUE(at::equal(inputs.v, inputs.k.narrow(3, 0, 8)));
  const auto state = method->begin_decoding(latent_problem());
  EXPECT_EQ(state->bytes(), 2 * 5 * 12 * 4) << "the values are stored once, as a part of the keys";
}

TEST(LatentAttention, RefusesTokensWhoseValuesAreNotThoseOfTheKeys) {
  const auto method = make_method("mla");
  auto inputs = make_inputs(*method, latent_problem(), Protocol::forward, 1);
  const at::NoGradGuard no_grad;
  const auto state = method->begin_decoding(latent_problem());
  inputs.k[1][0][2][3] = NAN;
  inputs.v = inputs.v.clone();
  method->extend(*state, inputs.tokens(0, 3));  // a copy of the values is the same
  inputs.v[0][0][3][0] += 1;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->step(*state, inputs.tokens(3, 1)); }),
                  "v differs from the first 8 entries of k, expected a view of them");
  EXPECT_EQ(state->position(), 3);
}

TEST(LatentAttention, RefusesValuesThatAreLongerThanKeys) {
  auto p = latent_problem();
  p.value_dim = 13;
  EXPECT_CONTAINS(make_method("mla")->why_unsupported(p, Protocol::decode).value_or(""), "value_dim ≤ head_dim");
  p = latent_problem();
  p.value_heads = 2;
  EXPECT_CONTAINS(make_method("mla")->why_unsupported(p, Protocol::decode).value_or(""), "as many heads of values as of keys");
}

}  // namespace
}  // namespace attn
