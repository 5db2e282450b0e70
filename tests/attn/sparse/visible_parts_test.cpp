// Tests of the division of visible pairs into parts.
#include "attn/sparse/visible_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "attn/mask.h"

namespace attn {
namespace {

struct PartsCall {
  Pattern pattern;
  bool causal;
  int64_t query_len, key_len, visible_keys;
};

std::string name_of(const PartsCall& c) {
  return c.pattern.text() + (c.causal ? " causal" : "") + " N=" + std::to_string(c.query_len) +
         " L=" + std::to_string(c.key_len) + " keys=" + std::to_string(c.visible_keys);
}

// How often the parts contain each pair, [N][L]; and checks of what else the parts promise.
std::vector<int> counts_of(const PartsCall& c, const std::vector<VisibleParts>& stages) {
  std::vector<int> counts(size_t(c.query_len * c.key_len));
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    std::vector<int> rows_of_stage(size_t(c.query_len));
    for (const auto& part : stages[stage]) {
      for (int64_t t = 0; t < part.rows; ++t) ++rows_of_stage.at(size_t(part.query_begin + t * part.step));
      for (int64_t begin = 0; begin < part.rows; begin += 5) {
        const auto end = std::min(part.rows, begin + 5);
        Interval ranges[2];
        part.keys_that_are_seen(begin, end, ranges[0], ranges[1]);
        EXPECT_TRUE(ranges[1].is_empty() || ranges[0].end < ranges[1].begin);
        for (int64_t u = 0; u < part.keys; ++u) {
          Interval rows[2];
          part.rows_that_see(u, begin, end, rows[0], rows[1]);
          const bool is_in_range = (u >= ranges[0].begin && u < ranges[0].end) || (u >= ranges[1].begin && u < ranges[1].end);
          for (const auto& interval : rows)
            for (auto t = interval.begin; t < interval.end; ++t) {
              EXPECT_TRUE(is_in_range) << "key " << u;
              ++counts.at(size_t((part.query_begin + t * part.step) * c.key_len + part.position(u)));
            }
        }
      }
    }
    for (const auto count : rows_of_stage) {
      EXPECT_LE(count, 1) << "a query is in two parts";
      if (stage == 0) {
        EXPECT_EQ(count, 1) << "a query is in no part";
      }
    }
  }
  return counts;
}

void check_parts(const PartsCall& c) {
  SCOPED_TRACE(name_of(c));
  const auto stages = visible_parts(c.pattern, c.causal, c.query_len, c.key_len, c.visible_keys);
  const auto counts = counts_of(c, stages);
  const Mask mask{c.causal, at::full({1}, c.visible_keys, at::kLong), c.pattern};
  const auto visible = mask.visible_pairs(at::arange(c.query_len), c.query_len, c.key_len).contiguous();
  double pairs = 0;
  for (size_t at = 0; at < counts.size(); ++at) {
    const int expected = visible.const_data_ptr<bool>()[at] ? 1 : 0;
    ASSERT_EQ(counts[at], expected) << "query " << at / size_t(c.key_len) << ", key " << at % size_t(c.key_len);
    pairs += expected;
  }
  EXPECT_EQ(count_pairs(stages), pairs);
}

TEST(VisibleParts, ContainEachVisiblePairOnce) {
  for (const std::string text : {"all", "window:1", "window:6", "window:200", "window:4+first:3", "window:4+first:90",
                                 "window:3+global:2", "global:4", "strided:1", "strided:7", "strided:200", "dilated:3/4",
                                 "dilated:200/1", "dilated:2/200", "block:8/2", "block:8/8", "block:1/1", "block:200/3"})
    for (const bool causal : {true, false})
      for (const auto& [query_len, key_len, visible_keys] :
           {std::tuple{33, 33, 33}, {33, 33, 20}, {33, 33, 0}, {20, 41, 41}, {41, 20, 20}, {41, 20, 7}, {1, 30, 30}, {1, 1, 1}})
        check_parts({Pattern::parse(text), causal, query_len, key_len, visible_keys});
}

TEST(VisibleParts, RandomPatterns) {
  std::mt19937 random(1);
  const auto up_to = [&](int64_t max) { return std::uniform_int_distribution<int64_t>(1, max)(random); };
  for (int i = 0; i < 2000; ++i) {
    const auto query_len = up_to(40), key_len = up_to(3) == 1 ? up_to(40) : query_len;
    const auto number = [&] { return std::to_string(up_to(50)); };
    const auto block = up_to(50);
    const std::string texts[] = {"window:" + number(),
                                 "window:" + number() + "+first:" + number(),
                                 "window:" + number() + "+global:" + number(),
                                 "global:" + number(),
                                 "strided:" + number(),
                                 "dilated:" + number() + "/" + number(),
                                 "block:" + std::to_string(block) + "/" + std::to_string(up_to(block))};
    check_parts({Pattern::parse(texts[size_t(up_to(7) - 1)]), up_to(2) == 1, query_len, key_len,
                 up_to(2) == 1 ? key_len : up_to(key_len)});
  }
}

}  // namespace
}  // namespace attn
