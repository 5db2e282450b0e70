// Compares LSH attention with plain loops, and tests masks, gradients, entries that are not finite, memory and decoding.
#include "attn/lsh/lsh_attention.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "harness/worker/cpu/memory.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;
using Factors = std::optional<std::vector<int64_t>>;

struct Setting {
  int64_t length, chunk, rounds;
  std::string profile = kTrax;
  bool causal = false;
  std::optional<std::vector<int64_t>> key_lengths;  // of two batch entries
  Factors bucket_factors;
  int64_t columns = 2;  // half the number of buckets, used if bucket_factors is not set
};

std::string text_of(const Setting& s) {
  std::ostringstream text;
  text << s.profile << " N=" << s.length << " chunk=" << s.chunk << " rounds=" << s.rounds << (s.causal ? " causal" : "")
       << (s.bucket_factors ? " factored" : "");
  if (s.key_lengths)
    for (const auto length : *s.key_lengths) text << " " << length;
  return text.str();
}

struct Arguments {
  at::Tensor qk, v, rotations;
  std::optional<at::Tensor> key_lengths;
};

constexpr int64_t kBatch = 2, kHeads = 2, kDim = 5, kValueDim = 3;

Arguments arguments_of(const Setting& s, uint64_t seed = 3) {
  const auto columns = s.bucket_factors ? ((*s.bucket_factors)[0] + (*s.bucket_factors)[1]) / 2 : s.columns;
  const auto random = [&](std::vector<int64_t> shape, uint64_t part) {
    const auto total = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    return draw_rotations(total, 1, 2, seed * 10 + part, at::kCPU).view(shape);  // standard normal numbers
  };
  Arguments a{random({kBatch, kHeads, s.length, kDim}, 0),
              random({kBatch, kHeads, s.length, kValueDim}, 1),
              random({kDim, s.rounds, columns}, 2),
              {}};
  if (s.key_lengths) a.key_lengths = at::tensor(*s.key_lengths, at::kLong);
  return a;
}

at::Tensor attend(const Setting& s, const Arguments& a) {
  return lsh_attention(a.qk, a.v, a.rotations, s.chunk, s.causal, a.key_lengths, s.profile,
                       at::OptionalIntArrayRef(s.bucket_factors));
}

// ---------------------------------------------------------------- plain loops

// A key that a query sees in a round.
struct Meeting {
  int64_t round, key;
};

// LSH attention of one batch entry and head by scalar loops. It shares no code with the implementation.
class PlainLsh {
 public:
  PlainLsh(const Setting& s, const Arguments& a, int64_t b, int64_t h)
      : s_(s),
        x_(a.qk.accessor<double, 4>()[b][h]),
        v_(a.v.accessor<double, 4>()[b][h]),
        rotations_(a.rotations.accessor<double, 3>()),
        visible_(s.key_lengths ? (*s.key_lengths)[size_t(b)] : s.length) {
    for (int64_t r = 0; r < s.rounds; ++r) sort_round(r);
  }

  // The keys that a query sees, each with the round, as often as the query sees them.
  std::vector<Meeting> meetings_of(int64_t query) const {
    const auto chunks = int64_t(rounds_[0].size());
    std::vector<Meeting> met;
    const auto meet = [&](int64_t r, int64_t c) {
      for (const auto key : rounds_[size_t(r)][size_t(c)])
        if (key < visible_ && (!s_.causal || key <= query)) met.push_back({r, key});
    };
    for (int64_t r = 0; r < s_.rounds; ++r) {
      const auto& round = rounds_[size_t(r)];
      for (int64_t c = 0; c < chunks; ++c) {
        const auto& members = round[size_t(c)];
        if (std::find(members.begin(), members.end(), query) == members.end()) continue;
        // Keys of another round's chunk, which the first chunk looks back to, count as met in round r.
        const auto begin = met.size();
        meet(r, c);
        if (c > 0) meet(r, c - 1);
        else if (s_.profile == kTrax && s_.rounds * chunks > 1) meet((r + s_.rounds - 1) % s_.rounds, chunks - 1);
        for (auto i = begin; i < met.size(); ++i) met[i].round = r;
      }
    }
    return met;
  }

  // The output row of a query.
  std::vector<double> row(int64_t query) const {
    std::vector<double> output(size_t(kValueDim), 0.0);
    const bool trax = s_.profile == kTrax;
    const auto met = meetings_of(query);
    std::map<int64_t, double> round_sums;
    double all = 0, largest = -INFINITY;
    for (const auto& m : met) largest = std::max(largest, logit(query, m.key));
    for (const auto& m : met) {
      const auto weight = std::exp(logit(query, m.key) - largest);
      round_sums[m.round] += weight;
      all += weight;
    }
    for (const auto& m : met) {
      const auto weight = std::exp(logit(query, m.key) - largest) / (trax ? all : round_sums[m.round] * double(s_.rounds));
      for (int64_t d = 0; d < kValueDim; ++d) output[size_t(d)] += weight * v_[m.key][d];
    }
    return output;
  }

 private:
  int64_t argmax_of_both_signs(const std::vector<double>& x) const {
    std::vector<double> both = x;
    for (const auto value : x) both.push_back(-value);
    return std::max_element(both.begin(), both.end()) - both.begin();
  }

  int64_t bucket(int64_t position, int64_t r) const {
    std::vector<double> turned;
    for (int64_t column = 0; column < rotations_.size(2); ++column) {
      double sum = 0;
      for (int64_t d = 0; d < kDim; ++d) sum += x_[position][d] * rotations_[d][r][column];
      turned.push_back(sum);
    }
    if (!s_.bucket_factors) return argmax_of_both_signs(turned);
    const auto middle = turned.begin() + (*s_.bucket_factors)[0] / 2;
    return argmax_of_both_signs({turned.begin(), middle}) +
           (*s_.bucket_factors)[0] * argmax_of_both_signs({middle, turned.end()});
  }

  void sort_round(int64_t r) {
    std::vector<int64_t> positions(size_t(s_.length));
    std::iota(positions.begin(), positions.end(), 0);
    std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) {
      const bool a_hidden = a >= visible_, b_hidden = b >= visible_;
      if (a_hidden || b_hidden) return !a_hidden && b_hidden;
      return bucket(a, r) < bucket(b, r);
    });
    auto& chunks = rounds_.emplace_back();
    for (int64_t i = 0; i < s_.length; ++i) {
      if (i % s_.chunk == 0) chunks.emplace_back();
      chunks.back().push_back(positions[size_t(i)]);
    }
  }

  double logit(int64_t query, int64_t key) const {
    double product = 0, squares = 0;
    for (int64_t d = 0; d < kDim; ++d) {
      product += x_[query][d] * x_[key][d];
      squares += x_[key][d] * x_[key][d];
    }
    product /= std::sqrt(double(kDim));
    if (s_.profile == kTrax) return product / std::sqrt(squares / double(kDim) + 1e-6) - (query == key ? 1e5 : 0);
    return squares == 0 ? 0 : product / std::sqrt(squares);
  }

  Setting s_;
  at::TensorAccessor<double, 2> x_, v_;
  at::TensorAccessor<double, 3> rotations_;
  int64_t visible_;
  std::vector<std::vector<std::vector<int64_t>>> rounds_;  // round, chunk → positions
};

at::Tensor plain_loops(const Setting& s, const Arguments& a) {
  auto output = at::zeros({kBatch, kHeads, s.length, kValueDim}, at::kDouble);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h) {
      const PlainLsh plain(s, a, b, h);
      for (int64_t i = 0; i < s.length; ++i) {
        const auto row = plain.row(i);
        for (int64_t d = 0; d < kValueDim; ++d) output[b][h][i][d] = row[size_t(d)];
      }
    }
  return output;
}

// Which rows see which keys in any round: bool [B,H,N,N].
at::Tensor visibility(const Setting& s, const Arguments& a) {
  auto seen = at::zeros({kBatch, kHeads, s.length, s.length}, at::kBool);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h) {
      const PlainLsh plain(s, a, b, h);
      for (int64_t i = 0; i < s.length; ++i)
        for (const auto& m : plain.meetings_of(i)) seen[b][h][i][m.key] = true;
    }
  return seen;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto* profile : {kTrax, kFastTransformers})
    for (const bool causal : {false, true})
      for (const bool padded : {false, true})
        for (const int64_t length : {1, 3, 4, 8, 13, 23})
          for (const int64_t rounds : {1, 2, 4})
            for (const bool factored : {false, true}) {
              Setting s{length, 4, rounds, profile, causal, {}, {}, 3};
              if (padded) s.key_lengths = {(2 * length + 2) / 3, length == 1 ? 0 : length / 4};
              if (factored) s.bucket_factors = {4, 6};
              all.push_back(s);
            }
  return all;
}

TEST(LshAttention, AgreesWithPlainLoops) {
  const at::NoGradGuard no_grad;
  for (const auto& s : settings()) {
    SCOPED_TRACE(text_of(s));
    const auto a = arguments_of(s);
    EXPECT_LT(largest_difference(attend(s, a), plain_loops(s, a)), 1e-12);
  }
}

TEST(LshAttention, AgreesWithPlainLoopsWhenAllVectorsAreEqual) {
  for (const auto* profile : {kTrax, kFastTransformers}) {
    for (const bool causal : {false, true}) {
      const Setting s{23, 4, 2, profile, causal, {}, {}};
      SCOPED_TRACE(text_of(s));
      auto a = arguments_of(s);
      a.qk = a.qk.slice(2, 0, 1).expand(a.qk.sizes()).contiguous();
      EXPECT_LT(largest_difference(attend(s, a), plain_loops(s, a)), 1e-12);
      a.qk.zero_();
      EXPECT_LT(largest_difference(attend(s, a), plain_loops(s, a)), 1e-12);
    }
  }
}

// The first causal row sees only its own position, so its output is its own value, however small the weight is.
TEST(LshAttention, TheFirstCausalRowSeesItself) {
  for (const auto* profile : {kTrax, kFastTransformers}) {
    for (const int64_t length : {1, 3, 40}) {
      const Setting s{length, 4, 1, profile, true, {}, {}};
      const auto a = arguments_of(s);
      const auto single = Arguments{a.qk.to(at::kFloat), a.v.to(at::kFloat), a.rotations, {}};
      EXPECT_LT(largest_difference(attend(s, single).select(2, 0), a.v.select(2, 0)), 1e-6) << text_of(s);
    }
  }
}

TEST(LshAttention, GradientsAgreeWithFiniteDifferences) {
  constexpr double h = 1e-6;
  for (auto s : settings()) {
    if (s.length != 13 && s.length != 3) continue;
    if (s.bucket_factors) continue;
    SCOPED_TRACE(text_of(s));
    auto a = arguments_of(s);
    a.qk.set_requires_grad(true);
    a.v.set_requires_grad(true);
    const auto direction = arguments_of(s, 7).v;
    const auto gradients = torch::autograd::grad({attend(s, a)}, {a.qk, a.v}, {direction});
    const auto order = lsh_buckets(a.qk, a.rotations, at::OptionalIntArrayRef(s.bucket_factors));
    const at::NoGradGuard no_grad;
    for (const auto& [x, gradient] : {std::pair{a.qk, gradients[0]}, {a.v, gradients[1]}}) {
      const auto flat = x.detach().view(-1);
      for (int64_t e = 0; e < flat.numel(); e += 3) {
        const auto value = flat[e].item<double>();
        const auto loss_at = [&](double moved) {
          flat[e].fill_(moved);
          EXPECT_TRUE(at::equal(lsh_buckets(a.qk, a.rotations, at::OptionalIntArrayRef(s.bucket_factors)), order));
          return (attend(s, a) * direction).sum().item<double>();
        };
        const auto difference = (loss_at(value + h) - loss_at(value - h)) / (2 * h);
        flat[e].fill_(value);
        ASSERT_NEAR(gradient.view(-1)[e].item<double>(), difference, 1e-7) << "entry " << e;
      }
    }
  }
}

// A NaN or infinity in a value makes the rows that see it NaN, and does not change other rows. In gradients it also reaches the
// keys that those rows see: in the trax profile those of all rounds, otherwise those of the same round only.
TEST(LshAttention, ANaNInAValueReachesExactlyTheRowsThatSeeIt) {
  for (const auto& s : settings()) {
    if (s.length != 23 || s.bucket_factors) continue;
    SCOPED_TRACE(text_of(s));
    const auto a = arguments_of(s);
    const auto seen = visibility(s, a);
    const auto results_of = [&](const at::Tensor& values) {
      auto given = a;
      given.qk = a.qk.clone().set_requires_grad(true);
      given.v = values.clone().set_requires_grad(true);
      const auto output = attend(s, given);
      const auto gradients = torch::autograd::grad({output}, {given.qk, given.v}, {at::ones_like(output)});
      return std::array{output.detach(), gradients[0], gradients[1]};
    };
    const auto clean = results_of(a.v);
    for (const int64_t position : {0, 4, 11}) {
      const auto rows = seen.select(3, position);
      const auto their_keys = seen.logical_and(rows.unsqueeze(3)).any(2);
      const std::array expected{rows, rows.logical_or(their_keys), their_keys};
      for (const double value : {std::nan(""), double(INFINITY)}) {
        auto spoilt = a.v.clone();
        spoilt.select(2, position).select(2, 1).fill_(value);
        const auto found = results_of(spoilt);
        for (size_t i = 0; i < 3; ++i) {
          if (i == 0 || s.profile == kTrax) {
            EXPECT_TRUE(at::equal(found[i].isnan().all(-1), expected[i])) << i << " of position " << position;
          }
          const auto reached = expected[i].unsqueeze(3);
          EXPECT_TRUE(at::equal(found[i].masked_fill(reached, 0), clean[i].masked_fill(reached, 0))) << i;
        }
      }
    }
  }
}

// A vector that is not finite has no meaningful bucket. In a single chunk every row that the mask allows sees it.
TEST(LshAttention, ANaNInAVectorOfQkReachesTheRowsThatSeeIt) {
  for (const auto* profile : {kTrax, kFastTransformers}) {
    const Setting s{6, 8, 2, profile, true, {}, {}};
    auto a = arguments_of(s);
    const auto clean = attend(s, a);
    a.qk.select(2, 2).select(2, 1).fill_(NAN);
    const auto output = attend(s, a);
    EXPECT_LT(largest_difference(output.slice(2, 0, 2), clean.slice(2, 0, 2)), 1e-14) << profile;
    EXPECT_TRUE(output.slice(2, 2).isnan().all().item<bool>()) << profile;
  }
}

TEST(LshAttention, HiddenPositionsDoNotChangeVisibleRows) {
  for (const auto& base : settings()) {
    if (!base.key_lengths || base.length != 23 || base.bucket_factors) continue;
    SCOPED_TRACE(text_of(base));
    const auto a = arguments_of(base);
    const auto hidden = at::arange(base.length).view({1, 1, -1, 1}) >= a.key_lengths->view({-1, 1, 1, 1});
    const auto gradients_of = [&](const at::Tensor& qk, const at::Tensor& v) {
      auto moved = a;
      moved.qk = qk.clone().set_requires_grad(true);
      moved.v = v.clone().set_requires_grad(true);
      const auto output = attend(base, moved);
      const auto gradients = torch::autograd::grad({output}, {moved.qk, moved.v}, {at::ones_like(output)});
      return std::array{output.detach().masked_fill(hidden, 0), gradients[0].masked_fill(hidden, 0), gradients[1]};
    };
    // The queries of hidden positions are finite here, so their rows contribute gradients to the keys that they see.
    const auto value_expected = gradients_of(a.qk, a.v), value_found = gradients_of(a.qk, a.v.masked_fill(hidden, NAN));
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(value_found[i], value_expected[i])) << i;

    // A NaN in a hidden query reaches its own row only, and no gradient comes from that row.
    for (const double value : {std::nan(""), -double(INFINITY)}) {
      const auto found = gradients_of(a.qk.masked_fill(hidden, value), a.v);
      EXPECT_TRUE(at::equal(found[0], value_expected[0]));
      EXPECT_TRUE(all_finite(found[1]));
      EXPECT_TRUE(all_finite(found[2]));
      EXPECT_TRUE(found[2].masked_select(hidden).eq(0).all().item<bool>());
    }
  }
}

TEST(LshAttention, ARowWithoutVisibleKeysIsZero) {
  for (const auto* profile : {kTrax, kFastTransformers}) {
    const Setting s{23, 4, 2, profile, false, std::vector<int64_t>{0, 4}, {}};
    auto a = arguments_of(s);
    a.qk.set_requires_grad(true);
    a.v.set_requires_grad(true);
    const auto output = attend(s, a);
    EXPECT_TRUE(output[0].eq(0).all().item<bool>());
    // Four keys fill the first chunk of a round. All positions in the last chunk and in the one before it are hidden.
    const PlainLsh plain(s, Arguments{a.qk.detach(), a.v.detach(), a.rotations, a.key_lengths}, 1, 0);
    ASSERT_TRUE(plain.meetings_of(22).empty());
    EXPECT_TRUE(output[1][0][22].eq(0).all().item<bool>());
    const auto gradients = torch::autograd::grad({output}, {a.qk, a.v}, {at::ones_like(output)});
    EXPECT_TRUE(all_finite(gradients[0]) && all_finite(gradients[1]));
    EXPECT_TRUE(gradients[0][0].eq(0).all().item<bool>() && gradients[1][0].eq(0).all().item<bool>());
  }
}

TEST(LshAttention, KeyLengthsOutsideTheSequenceAreClamped) {
  Setting s{13, 4, 2, kTrax, false, std::vector<int64_t>{13, 0}, {}};
  const auto a = arguments_of(s);
  auto beyond = a;
  beyond.key_lengths = at::tensor({99, -5}, at::kLong);
  EXPECT_TRUE(at::equal(attend(s, beyond), attend(s, a)));
}

TEST(LshAttention, HalfPrecisionFindsTheSameBucketsAndSumsInFloat32) {
  for (const auto* profile : {kTrax, kFastTransformers}) {
    const Setting s{500, 16, 4, profile, true, {}, {}, 8};
    auto a = arguments_of(s);
    a.qk = a.qk.to(at::kBFloat16);
    a.v = a.v.to(at::kBFloat16);
    const auto half = attend(s, a);
    EXPECT_EQ(half.scalar_type(), at::kBFloat16);
    const Arguments wide{a.qk.to(at::kDouble), a.v.to(at::kDouble), a.rotations, {}};
    EXPECT_TRUE(at::equal(lsh_buckets(a.qk, a.rotations, {}), lsh_buckets(wide.qk, a.rotations, {})));
    // Only the result is rounded to bfloat16's 8 bits.
    EXPECT_LT(((half.to(at::kDouble) - attend(s, wide)).abs() / attend(s, wide).abs().clamp_min(1e-3)).max().item<double>(),
              5e-3);
  }
}

TEST(LshAttention, TheSameSeedGivesTheSameRotations) {
  const auto a = draw_rotations(8, 2, 6, 5, at::kCPU);
  EXPECT_EQ(a.sizes(), (at::IntArrayRef{8, 2, 3}));
  EXPECT_EQ(a.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(a, draw_rotations(8, 2, 6, 5, at::kCPU)));
  EXPECT_FALSE(at::equal(a, draw_rotations(8, 2, 6, 6, at::kCPU)));
  const auto many = draw_rotations(64, 4, 64, 1, at::kCPU);
  EXPECT_NEAR(many.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(many.std().item<double>(), 1, 0.05);
  EXPECT_EQ(draw_rotations(8, 2, 2048, 5, at::kCPU).sizes(), (at::IntArrayRef{8, 2, (64 + 32) / 2}));
}

TEST(LshAttention, ManyBucketsAreFactored) {
  const auto factors = [](int64_t buckets) { return bucket_factors_of(buckets).value_or(std::vector<int64_t>{}); };
  EXPECT_EQ(factors(2), (std::vector<int64_t>{}));
  EXPECT_EQ(factors(128), (std::vector<int64_t>{}));
  EXPECT_EQ(factors(130), (std::vector<int64_t>{16, 8}));
  EXPECT_EQ(factors(256), (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(factors(258), (std::vector<int64_t>{32, 8}));
  EXPECT_EQ(factors(2048), (std::vector<int64_t>{64, 32}));
}

TEST(LshAttention, InvalidArgumentsAreNamed) {
  const Setting s{13, 4, 2, kTrax, false, std::vector<int64_t>{13, 5}, {}};
  const auto refusal = [&](auto change) {
    auto setting = s;
    auto a = arguments_of(s);
    change(setting, a);
    return message_of<c10::ValueError>([&] { attend(setting, a); });
  };
  const auto named = [&](auto change, const std::string& message) {
    EXPECT_CONTAINS(refusal(change), "lsh_attention: " + message);
  };
  named([](Setting&, Arguments& a) { a.qk.reset(); }, "qk is not defined");
  named([](Setting&, Arguments& a) { a.qk = a.qk[0]; }, "qk has shape [2, 13, 5], expected [batch, heads, length, dim]");
  named([](Setting&, Arguments& a) { a.v = a.v[0]; }, "v has shape [2, 13, 3], expected [batch, heads, length, dim]");
  named([](Setting&, Arguments& a) { a.v = a.v.slice(2, 1); }, "v has length 12, expected 13 as in qk");
  named([](Setting&, Arguments& a) { a.v = a.v.to(at::kFloat); }, "v is float32 but qk is float64");
  named([](Setting&, Arguments& a) { a.v = a.v.to(at::kMeta); }, "v is on meta but qk is on cpu");
  named([](Setting&, Arguments& a) { a.qk = a.qk.to(at::kLong); }, "qk is Long, expected a floating dtype");
  named([](Setting&, Arguments& a) { a.qk = a.qk.slice(2, 0, 0), a.v = a.v.slice(2, 0, 0); },
        "qk has shape [2, 2, 0, 5], expected");
  named([](Setting&, Arguments& a) { a.v = a.v.slice(3, 0, 0); },
        "v has shape [2, 2, 13, 0], expected length and dim of at least 1");
  named([](Setting&, Arguments& a) { a.rotations = a.rotations[0]; },
        "rotations has shape [2, 2], expected [dim, rounds, columns]");
  named([](Setting&, Arguments& a) { a.rotations = a.rotations.slice(0, 1); }, "rotations has dim 4, expected 5 as in qk");
  named([](Setting&, Arguments& a) { a.rotations = a.rotations.slice(1, 2); },
        "rotations have shape [5, 0, 2], expected at least");
  named([](Setting&, Arguments& a) { a.rotations = a.rotations.to(at::kInt); }, "rotations are Int, expected a floating dtype");
  named([](Setting&, Arguments& a) { a.rotations = a.rotations.to(at::kMeta); }, "rotations is on meta but qk is on cpu");
  named([](Setting& t, Arguments&) { t.chunk = 0; }, "chunk = 0, expected at least 1");
  named([](Setting& t, Arguments&) { t.profile = "Trax"; }, "profile = 'Trax', expected 'trax' or 'fast-transformers'");
  named([](Setting& t, Arguments&) { t.bucket_factors = {2, 3}; }, "bucket_factors = [2, 3], expected two even numbers");
  named([](Setting& t, Arguments&) { t.bucket_factors = {4}; }, "bucket_factors = [4], expected two even numbers");
  named([](Setting& t, Arguments&) { t.bucket_factors = {4, 4}; }, "rotations have 2 columns, expected 4, half the sum");
  named([](Setting&, Arguments& a) { a.key_lengths = at::tensor({1}, at::kLong); },
        "key_lengths has shape [1], expected [batch] = [2]");
  named(
      [](Setting&, Arguments& a) {
        a.key_lengths = at::zeros({2, 1}, at::kLong);
      },
      "key_lengths has shape [2, 1], expected [batch]");
  named([](Setting&, Arguments& a) { a.key_lengths = at::zeros({2}, at::kInt); }, "key_lengths is Int, expected int64");
  named([](Setting&, Arguments& a) { a.key_lengths = at::zeros({2}, at::kLong).to(at::kMeta); }, "key_lengths is on meta");

  EXPECT_CONTAINS(message_of<c10::ValueError>([] { draw_rotations(0, 1, 2, 0, at::kCPU); }), "head_dim = 0, expected at least 1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { draw_rotations(4, 0, 2, 0, at::kCPU); }), "rounds = 0, expected at least 1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { draw_rotations(4, 1, 3, 0, at::kCPU); }), "buckets = 3, expected an even");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { make_method("lsh:buckets=5"); }), "lsh: buckets = 5, expected an even number");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { make_method("lsh:profile=reformer"); }), "one of trax, fast-transformers");
}

// ---------------------------------------------------------------- the method

TEST(Lsh, TheNameSetsTheNumberOfRounds) {
  const auto inputs = make_inputs(problem_of({300, 300, 8, 8}, at::kDouble, Masking::causal), Protocol::forward, 1);
  for (const auto& [name, spec] :
       {std::pair{"lsh-1", "lsh:rounds=1"}, {"lsh-1", "lsh"}, {"lsh-4", "lsh:rounds=4"}, {"lsh-8", "lsh:rounds=8"}}) {
    const auto named = call(*make_method(name), inputs, Protocol::forward).output;
    EXPECT_TRUE(at::equal(named, call(*make_method(spec), inputs, Protocol::forward).output)) << name;
  }
}

TEST(Lsh, IgnoresKeys) {
  auto inputs = make_inputs(problem_of({100, 100, 8, 8}, at::kFloat, Masking::none), Protocol::forward_backward, 1);
  const auto method = make_method("lsh-4:chunk=16");
  const auto expected = call(*method, inputs, Protocol::forward_backward);
  EXPECT_FALSE(expected.gradients.k.defined());
  for (const auto& keys : {at::full_like(inputs.k, NAN).set_requires_grad(true), at::Tensor()}) {
    inputs.k = keys;
    const auto results = call(*method, inputs, Protocol::forward_backward);
    EXPECT_TRUE(at::equal(results.output, expected.output));
    EXPECT_TRUE(at::equal(results.gradients.q, expected.gradients.q));
  }
}

// With a single chunk every query sees all keys, so the result is the exact attention that the method approximates.
TEST(Lsh, OneChunkIsTheExactAttention) {
  for (const auto masking : kMaskings) {
    for (const auto* spec : {"lsh:chunk=64", "lsh-4:chunk=64", "lsh-4:chunk=64,profile=fast-transformers"}) {
      const auto problem = problem_of({50, 50, 8, 5}, at::kDouble, masking, 3);
      const auto inputs = inputs_of(problem, Protocol::forward);
      const auto method = make_method(spec);
      const auto rows = at::arange(50);
      const auto exact = method->exact_attention(inputs, rows);
      ASSERT_TRUE(exact);
      EXPECT_LT(largest_difference(call(*method, inputs, Protocol::forward).output, exact->output), 1e-12)
          << spec << name_of(masking);
    }
  }
}

// The vectors of positions 0…3 point in one direction and those of 4…7 in the opposite one. So each group of four shares a bucket
// under every rotation, and with chunks of four a row sees the keys of its own group. The second chunk also looks back to the
// first, and in the trax profile the first to the last.
TEST(Lsh, DiagnosticsAgreeWithCountsByHand) {
  const auto direction = at::tensor({1.0, 2.0, -1.0}, at::kDouble);
  const auto signs = at::tensor({1, 1, 1, 1, -1, -1, -1, -1}, at::kDouble).view({8, 1});
  const auto q = (signs * direction).view({1, 1, 8, 3}), v = at::ones({1, 1, 8, 2}, at::kDouble);
  const auto rows = at::arange(8);
  const auto diagnostics = [&](const std::string& spec, const Mask& mask) {
    const auto list = make_method(spec)->diagnostics({q, q, v, mask}, rows);
    return std::map<std::string, double>(list.begin(), list.end());
  };
  // In fast-transformers the logits are ±√6·1/√3 = ±√2, because ‖x‖ = √6 and keys have norm 1.
  const double same = 4 * std::exp(std::sqrt(2.0)), other = 4 * std::exp(-std::sqrt(2.0));
  auto found = diagnostics("lsh:chunk=4,buckets=8,profile=fast-transformers", {});
  EXPECT_EQ(found.size(), 4u);
  EXPECT_DOUBLE_EQ(found.at("lsh_bucket_mean"), 4);
  EXPECT_DOUBLE_EQ(found.at("lsh_bucket_skew"), 4 / (8 / 8.0));
  EXPECT_DOUBLE_EQ(found.at("lsh_top16_share"),
                   (0.5 + 1) / 2);  // all 8 keys are among the top 16, and half of the rows see only 4 of them
  EXPECT_NEAR(found.at("lsh_mass_covered"), (same / (same + other) + 1) / 2, 1e-12);

  // Six visible keys, of which the two that point the other way share a bucket.
  found = diagnostics("lsh:chunk=4,buckets=8,profile=fast-transformers", {false, at::tensor({6}, at::kLong)});
  EXPECT_DOUBLE_EQ(found.at("lsh_bucket_mean"), 3);
  EXPECT_DOUBLE_EQ(found.at("lsh_bucket_skew"), 4 / (6 / 8.0));

  // In trax the two chunks look back to each other, so every row sees all keys. The own position is not counted among the top
  // keys.
  found = diagnostics("lsh:chunk=4,buckets=8", {});
  EXPECT_DOUBLE_EQ(found.at("lsh_top16_share"), 1);
  EXPECT_NEAR(found.at("lsh_mass_covered"), 1, 1e-12);

  // The first causal row sees only its own position, which is not a top key. So it counts for lsh_mass_covered only.
  found = diagnostics("lsh:chunk=4,buckets=8", {true, std::nullopt});
  EXPECT_DOUBLE_EQ(found.at("lsh_top16_share"), 1);
  EXPECT_NEAR(found.at("lsh_mass_covered"), 1, 1e-12);
  found = diagnostics("lsh:chunk=4,buckets=8", {false, at::tensor({0}, at::kLong)});
  EXPECT_TRUE(found.empty());  // without visible keys no diagnostic is defined
}

TEST(Lsh, PeakMemoryGrowsLinearlyWithTheLength) {
  for (const auto* spec : {"lsh-1", "lsh-4", "lsh-4:profile=fast-transformers"}) {
    for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
      const auto peak = [&](int64_t length) {
        const auto inputs = make_inputs(problem_of({length, length, 16, 16}, at::kFloat, Masking::causal, 1, 1), protocol, 1);
        const auto method = make_method(spec);
        const attnbench::AllocationCounter counter;
        call(*method, inputs, protocol);
        return double(counter.peak_bytes());
      };
      // Above 128 buckets this holds because hashing is factored.
      EXPECT_NEAR((peak(32768) - peak(16384)) / (peak(16384) - peak(8192)), 2, 0.2) << spec;
    }
  }
}

// ---------------------------------------------------------------- decoding

TEST(Lsh, AStepIsTheLastRowOfTheForwardOverThePrefix) {
  // In trax the number of buckets depends on the length of the prefix, in fast-transformers it does not.
  for (const std::string spec : {"lsh:rounds=2,chunk=4", "lsh:rounds=2,chunk=4,profile=fast-transformers"}) {
    const auto problem = problem_of({21, 21, 8, 5}, at::kDouble, Masking::causal);
    const auto method = make_method(spec), same = make_method(spec);
    const auto inputs = inputs_of(problem, Protocol::forward);
    const auto forward = [&](int64_t tokens) { return same->forward(inputs.tokens(0, tokens)); };
    const auto state = method->begin_decoding(problem);
    EXPECT_EQ(double(state->bytes()), method->state_bytes(problem, 0));
    const auto filled = method->prefill(*state, inputs.tokens(0, 6));
    EXPECT_TRUE(at::equal(filled, forward(6)));
    method->extend(*state, inputs.tokens(6, 2));
    for (int64_t i = 8; i < 21; ++i) {
      const auto output = method->step(*state, inputs.tokens(i, 1));
      EXPECT_LT(largest_difference(output, forward(i + 1).slice(2, i)), 1e-12) << spec << " position " << i;
      EXPECT_EQ(double(state->bytes()), method->state_bytes(problem, i + 1));
    }
    EXPECT_EQ(state->position(), 21);
  }
}

TEST(Lsh, PredictedPeakOfDecodingIsNearTheMeasured) {
  for (const auto* spec : {"lsh-1", "lsh-4", "lsh-4:profile=fast-transformers"}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(std::string(spec) + " " + dtype_name(dtype));
      const auto capacity = problem_of({1500, 1500, 64, 64}, dtype, Masking::causal, 1, 4);
      const auto method = make_method(spec);
      const auto inputs = make_inputs(*method, capacity, Protocol::forward, 1);
      const auto near = [](double predicted, double measured) {
        EXPECT_GT(predicted, 0.8 * measured) << predicted / measured;
        EXPECT_LT(predicted, 1.5 * measured) << predicted / measured;
      };
      {
        const attnbench::AllocationCounter counter;
        const auto state = method->begin_decoding(capacity);
        method->prefill(*state, inputs);
        near(method->cost(capacity, Protocol::prefill).peak_bytes, double(attnbench::bytes_of(inputs) + counter.peak_bytes()));
      }
      const auto state = method->begin_decoding(capacity);
      method->extend(*state, inputs.tokens(0, 1499));
      const attnbench::AllocationCounter counter;
      method->step(*state, inputs.tokens(1499, 1));
      auto others = capacity;
      others.query_len = others.key_len = 1499;
      near(method->cost(others, Protocol::decode).peak_bytes, double(state->bytes() + counter.peak_bytes()));
    }
  }
}

}  // namespace
}  // namespace attn
