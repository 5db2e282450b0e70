// Tests of masks, of the problems from which they are drawn, and of the names of dtypes and protocols.
#include "attn/mask.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "attn/problem.h"
#include "attn/refusal.h"
#include "tests/support/errors_of.h"

namespace attn {
namespace {

using attnbench::message_of;

at::Generator generator(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

Mask with_lengths(std::vector<int64_t> lengths, bool causal = false) { return {causal, at::tensor(lengths, at::kLong)}; }

TEST(Mask, NothingIsHiddenByDefault) {
  const Mask mask;
  EXPECT_FALSE(mask.hidden_keys(5));
  EXPECT_FALSE(mask.hidden_pairs(5, 5, at::kCPU));
  EXPECT_FALSE(mask.empty_rows(5, 5, at::kCPU));
}

TEST(Mask, HidesKeysBeyondTheirLength) {
  const auto mask = with_lengths({0, 2, 3});
  const auto keys = *mask.hidden_keys(3);
  EXPECT_EQ(keys.sizes(), (at::IntArrayRef{3, 1, 3, 1}));
  EXPECT_EQ(keys.scalar_type(), at::kBool);
  EXPECT_TRUE(at::equal(keys.view({3, 3}), at::tensor({1, 1, 1, 0, 0, 1, 0, 0, 0}).view({3, 3}).to(at::kBool)));
  const auto pairs = *mask.hidden_pairs(2, 3, at::kCPU);
  EXPECT_TRUE(at::equal(pairs.expand({3, 1, 2, 3}), keys.transpose(2, 3).expand({3, 1, 2, 3})));
  EXPECT_TRUE(at::equal(mask.empty_rows(2, 3, at::kCPU)->view({3}), at::tensor({1, 0, 0}).to(at::kBool)));
  EXPECT_EQ(mask.empty_rows(2, 3, at::kCPU)->sizes(), (at::IntArrayRef{3, 1, 1, 1}));
}

TEST(Mask, HidesLaterKeysWhenCausal) {
  const auto later = at::tensor({0, 1, 1, 0, 0, 1, 0, 0, 0}).view({3, 3}).to(at::kBool);
  EXPECT_TRUE(at::equal(*Mask{true, {}}.hidden_pairs(3, 3, at::kCPU), later));
  const auto both = *with_lengths({1, 3}, true).hidden_pairs(3, 3, at::kCPU);
  EXPECT_EQ(both.sizes(), (at::IntArrayRef{2, 1, 3, 3}));
  EXPECT_TRUE(at::equal(both[0][0], at::tensor({0, 1, 1, 0, 1, 1, 0, 1, 1}).view({3, 3}).to(at::kBool)));
  EXPECT_TRUE(at::equal(both[1][0], later));
  EXPECT_FALSE((Mask{true, {}}.hidden_keys(3)));
}

TEST(Mask, VisiblePairsAreTheKeysThatTheRowsSee) {
  const auto rows = at::tensor({2, 0}, at::kLong);
  EXPECT_TRUE(at::equal(Mask{}.visible_pairs(rows, 3, 3), at::ones({1, 1, 2, 3}, at::kBool)));
  EXPECT_TRUE(
      at::equal(Mask{.causal = true}.visible_pairs(rows, 3, 3), at::tensor({1, 1, 1, 1, 0, 0}).view({1, 1, 2, 3}).to(at::kBool)));
  EXPECT_TRUE(at::equal(with_lengths({0, 2}, true).visible_pairs(rows, 3, 3),
                        at::tensor({0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0}).view({2, 1, 2, 3}).to(at::kBool)));
}

// The last query sees all keys, whether there are more keys than queries or fewer.
TEST(Mask, IsCausalAtTheEndWhereLengthsDiffer) {
  const Mask causal{true, {}};
  const auto more_keys = at::tensor({0, 0, 0, 1, 0, 0, 0, 0}).view({2, 4}).to(at::kBool);
  EXPECT_TRUE(at::equal(*causal.hidden_pairs(2, 4, at::kCPU), more_keys));
  EXPECT_TRUE(at::equal(causal.visible_pairs(at::arange(2), 2, 4).view({2, 4}), ~more_keys));
  EXPECT_FALSE(causal.empty_rows(2, 4, at::kCPU));
  const auto fewer_keys = at::tensor({1, 1, 1, 1, 0, 1, 0, 0}).view({4, 2}).to(at::kBool);
  EXPECT_TRUE(at::equal(*causal.hidden_pairs(4, 2, at::kCPU), fewer_keys));
  EXPECT_TRUE(at::equal(causal.visible_pairs(at::arange(4), 4, 2).view({4, 2}), ~fewer_keys));
  EXPECT_TRUE(at::equal(causal.empty_rows(4, 2, at::kCPU)->view({4}), at::tensor({1, 1, 0, 0}).to(at::kBool)));
  const auto both = *with_lengths({0, 1}, true).empty_rows(4, 2, at::kCPU);
  EXPECT_TRUE(at::equal(both.view({2, 4}), at::tensor({1, 1, 1, 1, 1, 1, 0, 0}).view({2, 4}).to(at::kBool)));
}

TEST(Mask, SelectsBatchEntries) {
  const auto selected = with_lengths({7, 8, 9}, true).select(at::tensor({2, 0}, at::kLong));
  EXPECT_TRUE(selected.causal);
  EXPECT_TRUE(at::equal(*selected.key_lengths, at::tensor({9, 7}, at::kLong)));
  EXPECT_FALSE((Mask{true, {}}.select(at::tensor({0}, at::kLong)).key_lengths));
}

TEST(Mask, DrawsLengthsFromTheProblem) {
  Problem problem;
  problem.batch = 4000;
  problem.key_len = 10;
  EXPECT_FALSE(Mask::from(problem, generator(1)).key_lengths);
  problem.key_lengths = KeyLengthDistribution::parse("uniform");
  const auto lengths = *Mask::from(problem, generator(1)).key_lengths;
  EXPECT_EQ(lengths.sizes(), at::IntArrayRef{4000});
  const auto counts = at::bincount(lengths, {}, 12);
  EXPECT_EQ(counts[0].item<int64_t>(), 0);
  EXPECT_EQ(counts[11].item<int64_t>(), 0);
  for (int64_t length = 1; length <= 10; ++length) EXPECT_NEAR(counts[length].item<double>(), 400, 100) << length;
  EXPECT_TRUE(at::equal(lengths, *Mask::from(problem, generator(1)).key_lengths));
  EXPECT_FALSE(at::equal(lengths, *Mask::from(problem, generator(2)).key_lengths));
  for (const auto* text : {"0", "3", "10"}) {
    problem.key_lengths = KeyLengthDistribution::parse(text);
    EXPECT_TRUE(Mask::from(problem, generator(1)).key_lengths->eq(std::stoi(text)).all().item<bool>());
  }
}

TEST(ZeroWhere, ReplacesEntriesAndTheirGradientsByZeros) {
  const auto x = at::tensor({1.0, std::nan(""), INFINITY, 4.0}).set_requires_grad(true);
  const auto where = at::tensor({0, 1, 1, 0}).to(at::kBool);
  const auto zeroed = zero_where(x, where);
  EXPECT_TRUE(at::equal(zeroed, at::tensor({1.0, 0.0, 0.0, 4.0})));
  zeroed.square().sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::tensor({2.0, 0.0, 0.0, 8.0})));
  EXPECT_TRUE(zero_where(x, std::nullopt).is_same(x));
}

TEST(PackedSequences, AreReadWrittenAndDrawn) {
  for (const auto* text : {"none", "uniform:3", "lengths:4", "lengths:1,5,2"})
    EXPECT_EQ(PackedSequences::parse(text).text(), text);
  for (const auto* text : {"", "some", "uniform", "uniform:", "uniform:0", "uniform:2,3", "uniform:x", "lengths:", "lengths:3,",
                           "lengths:3,0", "lengths:3;4", "lengths:99999999999999999999"})
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { PackedSequences::parse(text); }),
                    "packed = '" + std::string(text) + "', expected 'none', 'uniform:S' with a number of sequences");
  EXPECT_EQ(PackedSequences::parse("lengths:1,5,2").expected_lengths(8), (std::vector<int64_t>{1, 5, 2}));
  // Two parts of a length that is divided anywhere are a quarter and three quarters of it on average.
  EXPECT_EQ(PackedSequences::parse("uniform:2").expected_lengths(100), (std::vector<int64_t>{25, 75}));
  EXPECT_EQ(PackedSequences{}.expected_lengths(7), (std::vector<int64_t>{7}));

  Problem p;
  p.query_len = p.key_len = 8;
  p.packed = PackedSequences::parse("lengths:1,5,2");
  EXPECT_TRUE(at::equal(*Mask::from(p, generator(1)).cu_seqlens, at::tensor({0, 1, 6, 8}, at::kLong)));
  p.packed = PackedSequences::parse("uniform:8");
  EXPECT_TRUE(at::equal(*Mask::from(p, generator(1)).cu_seqlens, at::arange(9, at::kLong)));
  p.packed = PackedSequences::parse("uniform:3");
  const auto one = *Mask::from(p, generator(1)).cu_seqlens, again = *Mask::from(p, generator(1)).cu_seqlens;
  EXPECT_TRUE(at::equal(one, again));
  EXPECT_TRUE(one.diff().gt(0).all().item<bool>());
  bool differs = false;
  for (uint64_t seed = 2; seed < 10; ++seed) differs = differs || !at::equal(*Mask::from(p, generator(seed)).cu_seqlens, one);
  EXPECT_TRUE(differs);
}

TEST(PackedSequences, AQuerySeesItsOwnSequenceAlone) {
  Mask mask{.cu_seqlens = at::tensor({0, 2, 2, 5}, at::kLong)};
  const auto visible = [&] { return mask.visible_pairs(at::arange(5), 5, 5).view({5, 5}).to(at::kInt); };
  EXPECT_TRUE(at::equal(
      visible(), at::tensor({1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1}, at::kInt).view({5, 5})));
  EXPECT_FALSE(mask.empty_rows(5, 5, at::kCPU));
  mask.causal = true;
  // Positions count from the beginning of each sequence, so that the first of each is seen.
  mask.pattern = Pattern::parse("window:1+first:1");
  EXPECT_TRUE(at::equal(
      visible(), at::tensor({1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1}, at::kInt).view({5, 5})));
  EXPECT_TRUE(at::equal(mask.hidden_pairs(5, 5, at::kCPU)->view({5, 5}).logical_not().to(at::kInt), visible()));
}

TEST(KeyLengthDistribution, IsParsedFromText) {
  using Kind = KeyLengthDistribution::Kind;
  EXPECT_EQ(KeyLengthDistribution::parse("full").kind, Kind::full);
  EXPECT_TRUE(KeyLengthDistribution::parse("full").is_full());
  EXPECT_EQ(KeyLengthDistribution::parse("uniform").kind, Kind::uniform);
  EXPECT_EQ(KeyLengthDistribution::parse("12").kind, Kind::fixed);
  EXPECT_EQ(KeyLengthDistribution::parse("12").length, 12);
  for (const auto* text : {"", "-1", "1.5", "12 ", "Full", "99999999999999999999", "0x10"})
    EXPECT_CONTAINS(message_of<c10::ValueError>([&] { KeyLengthDistribution::parse(text); }),
                    "key_lengths = '" + std::string(text) + "', expected 'full', 'uniform' or a number of keys");
}

TEST(Problem, ARefusalNamesTheFieldThatIsWrong) {
  const auto refused = [](auto&& call) {
    try {
      call();
    } catch (const Refusal& refusal) {
      return refusal;
    }
    return Refusal(Refusal::Kind::unknown, "nothing was refused", "");
  };
  const auto field_of = [&](auto&& change) {
    Problem problem;
    change(problem);
    return refused([&] { problem.validate(); }).field;
  };
  EXPECT_EQ(field_of([](Problem& p) { p.heads = 0; }), "heads");
  EXPECT_EQ(field_of([](Problem& p) { p.kv_heads = 3; }), "kv_heads");
  EXPECT_EQ(field_of([](Problem& p) { p.key_lengths = {KeyLengthDistribution::Kind::fixed, 2000}; }), "key_lengths");
  EXPECT_EQ(field_of([](Problem& p) { p.batch = int64_t{1} << 60; }), "") << "the sizes are wrong together";
  const auto refusal = refused([] { KeyLengthDistribution::parse("1.5"); });
  EXPECT_EQ(refusal.field, "key_lengths");
  EXPECT_EQ(refusal.kind, Refusal::Kind::wrong);
}

TEST(Problem, SizesAreChecked) {
  const auto refusal = [](int64_t Problem::*member, int64_t value) {
    Problem problem;
    problem.*member = value;
    return message_of<c10::ValueError>([&] { problem.validate(); });
  };
  EXPECT_NO_THROW(Problem().validate());
  EXPECT_CONTAINS(refusal(&Problem::batch, -1), "problem: batch = -1, expected at least 0");
  EXPECT_CONTAINS(refusal(&Problem::heads, 0), "problem: heads = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(&Problem::query_len, 0), "problem: query_len = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(&Problem::key_len, -5), "problem: key_len = -5, expected at least 1");
  EXPECT_CONTAINS(refusal(&Problem::head_dim, 0), "problem: head_dim = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(&Problem::value_dim, 0), "problem: value_dim = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(&Problem::batch, int64_t{1} << 60), "more bytes than 64-bit sizes can count");

  Problem shared;
  shared.kv_heads = 3;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { shared.validate(); }), "kv_heads = 3, expected a divisor of 8");
  Problem beyond;
  beyond.key_lengths = KeyLengthDistribution::parse("1025");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { beyond.validate(); }), "key_lengths = 1025 is beyond key_len = 1024");

  Problem packed;
  packed.packed = PackedSequences::parse("lengths:1000,25");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { packed.validate(); }),
                  "packed = lengths:1000,25 has lengths that add up to 1025, expected query_len = 1024");
  packed.packed = PackedSequences::parse("uniform:1025");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { packed.validate(); }), "more sequences than query_len = 1024 has positions");
  packed.packed = PackedSequences::parse("uniform:2");
  packed.key_len = 1025;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { packed.validate(); }), "packed = uniform:2 needs key_len = query_len");
  Problem empty;
  empty.batch = 0;
  EXPECT_NO_THROW(empty.validate());
}

TEST(Problem, BytesOfItsTensors) {
  Problem p;
  p.batch = 2;
  p.heads = 3;
  p.query_len = 5;
  p.key_len = 7;
  p.head_dim = 11;
  p.value_dim = 13;
  EXPECT_EQ(p.query_bytes(), 2 * 3 * 5 * 11 * 4);
  EXPECT_EQ(p.key_bytes(), 2 * 3 * 7 * 11 * 4);
  EXPECT_EQ(p.value_bytes(), 2 * 3 * 7 * 13 * 4);
  EXPECT_EQ(p.output_bytes(), 2 * 3 * 5 * 13 * 4);
  EXPECT_EQ(p.input_bytes(), p.query_bytes() + p.key_bytes() + p.value_bytes());
  EXPECT_EQ(p.score_count(), 2 * 3 * 5 * 7);
  p.dtype = at::kBFloat16;
  EXPECT_EQ(p.query_bytes(), 2 * 3 * 5 * 11 * 2);
}

TEST(Names, OfDtypesAndProtocolsAreParsed) {
  for (const auto* name : {"float32", "float64", "bfloat16", "float16"}) EXPECT_EQ(dtype_name(parse_dtype(name)), name);
  EXPECT_EQ(parse_dtype("float64"), at::kDouble);
  EXPECT_EQ(parse_protocol("forward"), Protocol::forward);
  EXPECT_EQ(parse_protocol("forward_backward"), Protocol::forward_backward);
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { parse_dtype("float"); }),
                  "dtype = 'float', expected float32, float64, bfloat16 or float16");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { parse_protocol("train"); }),
                  "protocol = 'train', expected forward, forward_backward, prefill or decode");
}

}  // namespace
}  // namespace attn
