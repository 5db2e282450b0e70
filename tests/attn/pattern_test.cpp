// Tests of patterns: their texts, and which pairs they leave visible.
#include "attn/pattern.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "attn/refusal.h"
#include "tests/support/errors_of.h"

namespace attn {
namespace {

constexpr const char* kTexts[] = {"all",         "window:1",  "window:7",  "window:5+first:3", "window:4+global:2",
                                  "global:3",    "strided:1", "strided:4", "strided:100",      "dilated:3/4",
                                  "dilated:9/1", "block:8/2", "block:5/5", "block:1/1"};

TEST(Pattern, TextsAreReadAndWritten) {
  for (const std::string text : kTexts) {
    EXPECT_EQ(Pattern::parse(text).text(), text);
    EXPECT_EQ(Pattern::parse(text).is_all(), text == "all");
  }
}

TEST(Pattern, WrongTextsAreErrorsThatNameThem) {
  for (const std::string text :
       {"", "full", "window", "window:", "window:x", "window:3 ", "window:3+", "window:3+first", "window:3+strided:2", "first:2",
        "window:3+first:1+global:1", "strided:2+first:1", "dilated:3", "dilated:3/", "block:4", "block:/2", "Window:3"}) {
    SCOPED_TRACE(text);
    const auto message = attnbench::message_of<Refusal>([&] { Pattern::parse(text); });
    EXPECT_CONTAINS(message, "pattern = '" + text + "', expected all, window:W");
  }
  for (const std::string text : {"window:0", "window:-1", "window:3+first:0", "window:2+global:0", "strided:0", "dilated:2/0",
                                 "block:2/0", "window:2000000000", "window:99999999999999999999"}) {
    SCOPED_TRACE(text);
    const auto message = attnbench::message_of<Refusal>([&] { Pattern::parse(text); });
    EXPECT_CONTAINS(message, "pattern = '" + text + "': the ");
    EXPECT_CONTAINS(message, "is out of range, expected 1 to 1073741824");
  }
  EXPECT_CONTAINS(attnbench::message_of<Refusal>([] { Pattern::parse("block:4/5"); }),
                  "pattern = 'block:4/5': a block of 4 has no 5 last positions");
}

// The definitions of attn/pattern.h for one pair.
bool sees(const Pattern& p, int64_t i, int64_t j) {
  const auto distance = std::abs(i - j);
  const auto block_of = [&](int64_t x) { return x >= 0 ? x / p.size : -((-x + p.size - 1) / p.size); };
  if (j < p.first || j < p.global || (i >= 0 && i < p.global)) return true;
  switch (p.kind) {
    case Pattern::Kind::all: return true;
    case Pattern::Kind::none: return false;
    case Pattern::Kind::window: return distance < p.size;
    case Pattern::Kind::strided: return distance < p.size || distance % p.size == 0;
    case Pattern::Kind::dilated: return distance % p.step == 0 && distance < p.size * p.step;
    case Pattern::Kind::block: return block_of(i) == block_of(j) || (block_of(j) < block_of(i) && j % p.size >= p.size - p.step);
  }
  return false;
}

TEST(Pattern, VisiblePairsAreThoseOfTheDefinition) {
  const auto i = at::arange(-6, 40), j = at::arange(0, 40);
  for (const std::string text : kTexts) {
    SCOPED_TRACE(text);
    const auto pattern = Pattern::parse(text);
    const auto visible = pattern.visible(i.unsqueeze(1), j.unsqueeze(0));
    ASSERT_EQ(visible.scalar_type(), at::kBool);
    const auto found = visible.contiguous();
    for (int64_t row = 0; row < 46; ++row)
      for (int64_t key = 0; key < 40; ++key)
        ASSERT_EQ(found.const_data_ptr<bool>()[row * 40 + key], sees(pattern, row - 6, key)) << row - 6 << ", " << key;
  }
}

// Written out by hand, as papers draw them, so that the definitions themselves are checked.
TEST(Pattern, PicturesOfEightCausalPositions) {
  const auto picture = [](const std::string& text) {
    std::string rows;
    const auto pattern = Pattern::parse(text);
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t j = 0; j <= i; ++j) rows += sees(pattern, i, j) ? '#' : '.';
      rows += ' ';
    }
    return rows;
  };
  EXPECT_EQ(picture("window:3"), "# ## ### .### ..### ...### ....### .....### ");
  EXPECT_EQ(picture("window:2+first:1"), "# ## ### #.## #..## #...## #....## #.....## ");
  EXPECT_EQ(picture("strided:3"), "# ## ### #### .#### ..#### #..#### .#..#### ");
  EXPECT_EQ(picture("dilated:2/3"), "# .# ..# #..# .#..# ..#..# ...#..# ....#..# ");
  EXPECT_EQ(picture("block:3/1"), "# ## ### ..## ..### ..#### ..#..## ..#..### ");
  EXPECT_EQ(picture("global:2"), "# ## ##. ##.. ##... ##.... ##..... ##...... ");
}

}  // namespace
}  // namespace attn
