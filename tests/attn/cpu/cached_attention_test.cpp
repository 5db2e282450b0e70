// Tests of the attention to a cache against its definition in float64, for every instruction set.
#include "attn/cpu/cached_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "attn/cpu/instruction_set.h"

namespace attn::cpu {
namespace {

TEST(CachedAttention, IsSoftmaxAttentionForEveryInstructionSet) {
  for (const auto set : available_instruction_sets()) {
    const auto& kernels = cached_attention_kernels(set);
    EXPECT_EQ(kernels.name, std::string(name_of(set)));
    for (const int64_t length : {1, 3, 4, 7, 16, 33, 130})
      for (const int64_t head_dim : {1, 8, 24, 32, 65})
        for (const int64_t value_dim : {1, 16, 24, 32, 50, 64}) {
          SCOPED_TRACE(testing::Message() << kernels.name << " " << length << " " << head_dim << " " << value_dim);
          const auto q = at::randn({head_dim}), k = at::randn({length, head_dim}), v = at::randn({length, value_dim});
          // Numbers beyond the output and the scores must stay as they are.
          const auto output = at::full({value_dim + 1}, 7.0f), scores = at::full({cached_attention_scratch(length) + 1}, 7.0f);
          kernels.attend({q.const_data_ptr<float>(), k.const_data_ptr<float>(), v.const_data_ptr<float>(),
                          output.mutable_data_ptr<float>(), scores.mutable_data_ptr<float>(), length, head_dim, value_dim, 0.7f});
          const auto weights = at::softmax(at::mv(k.to(at::kDouble), q.to(at::kDouble)) * double(0.7f), 0);
          const auto expected = at::mv(v.to(at::kDouble).t(), weights);
          EXPECT_LE((output.narrow(0, 0, value_dim) - expected).abs().max().item<double>(), 1e-5);
          EXPECT_EQ(output[value_dim].item<float>(), 7);
          EXPECT_EQ(scores[-1].item<float>(), 7);
          // A sink takes weight from all keys, also where it is the largest of all scores by far.
          for (const float sink : {-2.0f, 1.5f, 30.0f}) {
            kernels.attend({q.const_data_ptr<float>(), k.const_data_ptr<float>(), v.const_data_ptr<float>(),
                            output.mutable_data_ptr<float>(), scores.mutable_data_ptr<float>(), length, head_dim, value_dim, 0.7f,
                            sink});
            const auto logits = at::mv(k.to(at::kDouble), q.to(at::kDouble)) * double(0.7f);
            const auto all = at::softmax(at::cat({logits, at::full({1}, double(sink), at::kDouble)}), 0).narrow(0, 0, length);
            const auto difference = (output.narrow(0, 0, value_dim) - at::mv(v.to(at::kDouble).t(), all)).abs().max();
            EXPECT_LE(difference.item<double>(), 1e-5) << sink;
          }
        }
  }
}

TEST(CachedAttention, IsFiniteForLargeScores) {
  for (const auto set : available_instruction_sets()) {
    const auto q = at::full({8}, 100.0f), k = at::full({21, 8}, 100.0f), v = at::ones({21, 8}), output = at::empty({8});
    k[5].fill_(-100);
    const auto scores = at::empty({cached_attention_scratch(21)});
    cached_attention_kernels(set).attend({q.const_data_ptr<float>(), k.const_data_ptr<float>(), v.const_data_ptr<float>(),
                                          output.mutable_data_ptr<float>(), scores.mutable_data_ptr<float>(), 21, 8, 8, 1.0f});
    EXPECT_TRUE(at::allclose(output, at::ones({8}))) << name_of(set) << output;
  }
}

}  // namespace
}  // namespace attn::cpu
