// Tests of folders of speech, and of the batches that are made from them.
#include "experiments/data/speech.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "experiments/data/npy.h"
#include "tests/experiments/data/data_files.h"
#include "tests/experiments/generator.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::seeded;
using attnbench::TempFolder;
using Labels = std::vector<int64_t>;

// Features of which all elements differ.
at::Tensor features(int64_t frames, float first = 0) { return at::arange(frames * 40).to(at::kFloat).view({frames, 40}) + first; }

// A folder of two utterances to train with and one to validate with.
void write_folder(const TempFolder& folder) {
  folder.write("phones.txt", "aa\nb\nsil\n");
  folder.write("training.tsv", "first\tone.npy\tsil aa b\nsecond\tmore/two.npy\taa aa\r\n");
  folder.write("validation.tsv", "first\t" + folder.path("three.npy") + "\tb");
  std::filesystem::create_directory(folder.path("more"));
  write_npy(folder.path("one.npy"), features(5));
  write_npy(folder.path("more/two.npy"), features(3, 0.5));
  write_npy(folder.path("three.npy"), features(1, 0.25));
}

std::string error_of(const TempFolder& folder) {
  return message_of<c10::ValueError>([&] { load_speech(folder.path()); });
}

std::vector<Utterance> of_lengths(const std::vector<int64_t>& frames) {
  std::vector<Utterance> utterances;
  for (const auto count : frames) utterances.push_back({"u", count, {1}, "", {}});
  return utterances;
}

TEST(Speech, ReadsAFolder) {
  const TempFolder folder;
  write_folder(folder);
  const auto set = load_speech(folder.path());
  EXPECT_EQ(set.phones, (std::vector<std::string>{"aa", "b", "sil"}));
  ASSERT_EQ(set.training.size(), 2U);
  EXPECT_EQ(set.training[0].id, "first");
  EXPECT_EQ(set.training[0].frames, 5);
  EXPECT_EQ(set.training[0].labels, (Labels{3, 1, 2}));
  EXPECT_EQ(set.training[1].id, "second");
  EXPECT_EQ(set.training[1].frames, 3);
  EXPECT_EQ(set.training[1].labels, (Labels{1, 1}));
  ASSERT_EQ(set.validation.size(), 1U);
  EXPECT_EQ(set.validation[0].labels, (Labels{2}));
  EXPECT_TRUE(at::equal(speech_batch(set.validation, {0}).features[0], features(1, 0.25)));
}

TEST(Speech, ABatchIsPaddedWithZerosAndHasTheLabelsOneAfterAnother) {
  const TempFolder folder;
  write_folder(folder);
  const auto set = load_speech(folder.path());
  const auto batch = speech_batch(set.training, {1, 0});
  ASSERT_EQ(batch.features.sizes(), (at::IntArrayRef{2, 5, 40}));
  EXPECT_EQ(batch.features.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(batch.features[0].narrow(0, 0, 3), features(3, 0.5)));
  EXPECT_TRUE(at::equal(batch.features[0].narrow(0, 3, 2), at::zeros({2, 40})));
  EXPECT_TRUE(at::equal(batch.features[1], features(5)));
  EXPECT_TRUE(at::equal(batch.frame_lengths, at::tensor({3, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({1, 1, 3, 1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.label_lengths, at::tensor({2, 3}, at::kLong)));
}

TEST(Speech, TheLossOfLibTorchTakesABatch) {
  const TempFolder folder;
  write_folder(folder);
  const auto set = load_speech(folder.path());
  const auto batch = speech_batch(set.training, {0, 1});
  const auto log_probs = at::log_softmax(at::zeros({5, 2, 4}), -1);  // [T, B, phones + 1]
  const auto loss = at::ctc_loss(log_probs, batch.labels, batch.frame_lengths, batch.label_lengths, 0, at::Reduction::None);
  // Every path has probability 4^-frames. Only one path of 3 frames reads "aa aa". Those of 5 frames that read 3 different phones
  // number C(5 + 3, 2 · 3) = 28.
  EXPECT_NEAR(loss[0].item<double>(), 5 * std::log(4) - std::log(28), 1e-5);
  EXPECT_NEAR(loss[1].item<double>(), 3 * std::log(4), 1e-5);
}

TEST(Speech, RefusesWrongListsOfPhones) {
  const auto error = [](const std::string& text) {
    return message_of<c10::ValueError>([&] { parse_phones("phones.txt", text); });
  };
  EXPECT_CONTAINS(error(""), "phones.txt: line 1: byte 0: found an empty line, expected text");
  EXPECT_CONTAINS(error("a\n\nb\n"), "phones.txt: line 2: byte 2: found an empty line");
  EXPECT_CONTAINS(error("a\nb c\n"), "phones.txt: line 2: byte 2: found 'b c', expected the name of a phone without white space");
  EXPECT_CONTAINS(error("a\nb\tc\n"), "found 'b?c'");
  EXPECT_CONTAINS(error("a\nb\na"), "line 3: byte 4: found 'a' for the second time, expected another phone");
}

TEST(Speech, RefusesWrongListsOfUtterances) {
  const auto error = [](const std::string& text) {
    return message_of<c10::ValueError>([&] { parse_utterances("list.tsv", text, {"a", "b"}); });
  };
  EXPECT_CONTAINS(error(""), "list.tsv: line 1: byte 0: found an empty line");
  EXPECT_CONTAINS(error("u\tf\n"), "list.tsv: line 1: byte 0: found 2 columns, expected 3 columns separated by tabs");
  EXPECT_CONTAINS(error("u\tf\ta\nv\tf\ta\tb\n"), "line 2: byte 6: found 4 columns");
  EXPECT_CONTAINS(error("\tf\ta\n"), "line 1: byte 0: found '', expected the identifier of an utterance");
  EXPECT_CONTAINS(error("u v\tf\ta\n"), "found 'u v', expected the identifier of an utterance, without white space");
  EXPECT_CONTAINS(error("u\tf\ta\nu\tg\ta\n"), "line 2: byte 6: found 'u' for the second time, expected another identifier");
  EXPECT_CONTAINS(error("u\t\ta\n"), "line 1: byte 2: found '', expected the path of a file of features");
  EXPECT_CONTAINS(error("u\tf\ta  c\n"), "line 1: byte 7: found 'c', expected a phone that phones.txt lists");
  EXPECT_CONTAINS(error("u\tf\t \n"), "line 1: byte 4: found an empty transcript, expected one or more phones");
}

TEST(Speech, LongTextInAMessageIsShortened) {
  const auto message = message_of<c10::ValueError>([] { parse_utterances("l", "u\tf\t" + std::string(100'000, 'x'), {"a"}); });
  EXPECT_CONTAINS(message, "found '" + std::string(60, 'x') + "…', expected");
}

TEST(Speech, RefusesEveryShortenedFileOfFeaturesAndEveryMissingFile) {
  const TempFolder folder;
  write_folder(folder);
  const auto whole = folder.read("three.npy");
  for (size_t size = 0; size < whole.size(); ++size) {
    folder.write("three.npy", whole.substr(0, size));
    EXPECT_CONTAINS(error_of(folder), folder.path("three.npy") + ": byte ");
  }
  for (const auto* name : {"three.npy", "validation.tsv", "training.tsv", "phones.txt"}) {
    std::filesystem::remove(folder.path(name));
    EXPECT_CONTAINS(error_of(folder), folder.path(name) + ": there is no such file");
  }
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { load_speech(folder.path("none")); }), "/none: there is no such folder");
}

TEST(Speech, RefusesFeaturesThatDoNotFit) {
  const TempFolder folder;
  write_folder(folder);
  write_npy(folder.path("one.npy"), at::zeros({5, 39}));
  EXPECT_CONTAINS(error_of(folder), folder.path("one.npy") + ": 39 columns, expected 40, the features of a frame");
  write_npy(folder.path("one.npy"), features(2));
  EXPECT_CONTAINS(error_of(folder),
                  folder.path("one.npy") + ": 2 frames, expected at least 3 for the 3 phones of utterance 'first'");
  write_npy(folder.path("one.npy"), features(3));
  write_npy(folder.path("more/two.npy"), features(2));  // Two equal phones need a blank between them.
  EXPECT_CONTAINS(error_of(folder), "two.npy: 2 frames, expected at least 3 for the 2 phones of utterance 'second'");
}

TEST(Speech, RefusesABatchWhoseFilesHaveChanged) {
  const TempFolder folder;
  write_folder(folder);
  const auto set = load_speech(folder.path());
  write_npy(folder.path("one.npy"), features(4));
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { speech_batch(set.training, {0}); }),
                  "the features of utterance 'first' have shape [4, 40], expected [5, 40]");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { speech_batch(set.training, {}); }), "expected at least one index");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { speech_batch(set.training, {2}); }), "index 2, expected 0 to 1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { speech_batch(set.training, {-1}); }), "index -1, expected 0 to 1");
}

TEST(Speech, ReadsWhatItHasWritten) {
  const TempFolder source, copy;
  write_folder(source);
  const auto set = load_speech(source.path());
  write_speech(copy.path("new/folder"), set);
  const auto read = load_speech(copy.path("new/folder"));
  EXPECT_EQ(read.phones, set.phones);
  for (const auto part : {&SpeechSet::training, &SpeechSet::validation}) {
    ASSERT_EQ((read.*part).size(), (set.*part).size());
    for (int64_t i = 0; i < int64_t((set.*part).size()); ++i) {
      EXPECT_EQ((read.*part)[size_t(i)].id, (set.*part)[size_t(i)].id);
      EXPECT_EQ((read.*part)[size_t(i)].labels, (set.*part)[size_t(i)].labels);
      EXPECT_TRUE(at::equal(speech_batch(read.*part, {i}).features, speech_batch(set.*part, {i}).features));
    }
  }
}

TEST(Speech, RefusesToWriteWhatTheFormatCannotHold) {
  const TempFolder folder;
  SpeechSet set{{"a"}, {{"u", 2, {1}, "", features(2)}}, {{"u", 2, {1}, "", features(2)}}};
  write_speech(folder.path(), set);
  set.training[0].labels = {2};
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { write_speech(folder.path(), set); }),
                  "utterance 'u' has label 2, expected 1 to 1");
  set.training[0].labels = {1};
  set.training[0].id = "two words";
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { write_speech(folder.path(), set); }), "found 'two words'");
  set.phones = {"two words"};
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { write_speech(folder.path(), set); }),
                  "phones.txt: line 1: byte 0: found 'two words'");
}

TEST(BatchesByLength, EveryUtteranceIsInOneBatch) {
  for (const int64_t count : {0, 1, 9, 10, 11, 100}) {
    const auto batches = batches_by_length(of_lengths(std::vector<int64_t>(size_t(count), 7)), 10, seeded(1));
    EXPECT_EQ(int64_t(batches.size()), (count + 9) / 10);
    std::multiset<int64_t> seen;
    int64_t smaller = 0;
    for (const auto& batch : batches) {
      EXPECT_LE(batch.size(), 10U);
      EXPECT_GE(batch.size(), 1U);
      smaller += batch.size() < 10;
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_LE(smaller, 1);
    std::multiset<int64_t> expected;
    for (int64_t i = 0; i < count; ++i) expected.insert(i);
    EXPECT_EQ(seen, expected);
  }
}

TEST(BatchesByLength, ABatchHasSimilarLengths) {
  std::vector<int64_t> lengths;
  const auto drawn = at::randint(100, 2400, {1000}, seeded(2), at::kLong);
  for (int64_t i = 0; i < 1000; ++i) lengths.push_back(drawn[i].item<int64_t>());
  int64_t padded = 0, frames = 0;
  for (const auto& batch : batches_by_length(of_lengths(lengths), 10, seeded(3))) {
    int64_t longest = 0;
    for (const auto i : batch) {
      longest = std::max(longest, lengths[size_t(i)]);
      frames += lengths[size_t(i)];
    }
    padded += longest * int64_t(batch.size());
  }
  // Batches of random utterances would be padded to about 1.75 times their frames.
  EXPECT_LT(double(padded) / double(frames), 1.06);
}

TEST(BatchesByLength, TheOrderAndTheCompanyChangeWithTheGenerator) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 200; ++i) lengths.push_back(500 + i);
  const auto utterances = of_lengths(lengths);
  auto random = seeded(4);
  const auto state = random.get_state();
  const auto first = batches_by_length(utterances, 8, random), second = batches_by_length(utterances, 8, random);
  random.set_state(state);
  EXPECT_EQ(batches_by_length(utterances, 8, random), first);
  EXPECT_NE(second, first);
  // The batches are not in the order of their lengths.
  const auto shortest = [&](const auto& batch) { return *std::min_element(batch.begin(), batch.end()); };
  EXPECT_FALSE(
      std::is_sorted(first.begin(), first.end(), [&](const auto& a, const auto& b) { return shortest(a) < shortest(b); }));
  // Other utterances come together in the next epoch.
  std::set<std::set<int64_t>> together;
  for (const auto& batches : {first, second}) {
    for (const auto& batch : batches) together.emplace(batch.begin(), batch.end());
  }
  EXPECT_GT(together.size(), first.size() + first.size() / 2);
}

TEST(BatchesByLength, RefusesWrongArguments) {
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { batches_by_length({}, 0, seeded(1)); }), "batch = 0, expected at least 1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { batches_by_length({}, 1, {}); }), "expected a generator of the CPU");
}

}  // namespace
}  // namespace experiments
