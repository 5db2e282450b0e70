// Tests of sweep files: the cases that they expand to, and the errors that malformed ones lead to.
#include "harness/sweep/sweep_file.h"

#include <gtest/gtest.h>

#include <map>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_catalogue.h"

namespace attnbench {
namespace {

std::vector<Case> expand(const std::string& text, const SweepOverrides& overrides = {}) {
  const TempFolder folder;
  return SweepFile(folder.write("some.toml", text), test_catalogue(), overrides).cases();
}

// The message of the error that this sweep file leads to, without the path of the file.
std::string refusal(const std::string& text, const SweepOverrides& overrides = {}) {
  const TempFolder folder;
  const auto path = folder.write("some.toml", text);
  auto message = message_of<UsageError>([&] { SweepFile(path, test_catalogue(), overrides).cases(); });
  if (message.starts_with(path)) message.erase(0, path.size());
  return message;
}

std::vector<int64_t> values(const std::vector<Case>& cases, int64_t Case::*member) {
  std::vector<int64_t> all;
  for (const auto& c : cases) all.push_back(c.*member);
  return all;
}

// A sweep file of the method `linear` with these further lines in its section [axes].
std::string axes(const std::string& lines) { return "[axes]\nmethod = \"linear\"\n" + lines + "\n"; }

using Numbers = std::vector<int64_t>;

TEST(SweepFile, HasTheNameOfItsFileAndADescription) {
  const TempFolder folder;
  const SweepFile sweep(folder.write("figure9.toml", "description = \"what it shows\"\n" + axes("")), test_catalogue());
  EXPECT_EQ(sweep.stem(), "figure9");
  EXPECT_EQ(sweep.description(), "what it shows");
}

TEST(SweepFile, AxesAndSettingsThatAreNotGivenHaveTheDefaultsOfACase) {
  const auto cases = expand(axes(""));
  ASSERT_EQ(cases.size(), 1u);
  Case expected;
  expected.method = "linear";
  expected.complete();
  EXPECT_EQ(case_key(to_json(cases[0])), case_key(to_json(expected)));
  EXPECT_EQ(cases[0].deadline_s, 120);
  EXPECT_EQ(cases[0].min_samples, 5);
}

TEST(SweepFile, ExpandsRanges) {
  EXPECT_EQ(values(expand(axes("query_len = \"512-65536*2\"")), &Case::query_len),
            (Numbers{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}));
  EXPECT_EQ(values(expand(axes("head_dim = \"16-64+16\"")), &Case::head_dim), (Numbers{16, 32, 48, 64}));
  EXPECT_EQ(values(expand(axes("query_len = \"10-35*2\"")), &Case::query_len), (Numbers{10, 20}));
  EXPECT_EQ(values(expand(axes("query_len = \"10-35+7\"")), &Case::query_len), (Numbers{10, 17, 24, 31}));
  EXPECT_EQ(values(expand(axes("query_len = \"7-7*2\"")), &Case::query_len), (Numbers{7}));
  EXPECT_EQ(values(expand(axes("query_len = [3, \"512-1024*2\", 5]")), &Case::query_len), (Numbers{3, 512, 1024, 5}));
  // The last steps must not overflow.
  EXPECT_EQ(values(expand(axes("seed = \"2305843009213693952-4611686018427387903*5\"")), &Case::seed),
            (Numbers{int64_t{1} << 61}));
  EXPECT_EQ(values(expand(axes("seed = \"4000000000000000000-4500000000000000000+9000000000000000000\"")), &Case::seed),
            (Numbers{4000000000000000000}));
}

TEST(SweepFile, MalformedRangesAreRefused) {
  for (const auto* text :
       {"1024-512*2", "512-1024*1", "512-1024*0", "512-1024*-2", "512-1024+0", "0-8*2", "-8-8*2", "512-", "512-1024", "512-1024*",
        "*2", "512*2-1024", "a-b*c", "512-1024*2*2", " 512-1024*2", "512-1024*2 ", "1.5-3*2", "", "512-99999999999999999999*2"})
    EXPECT_EQ(refusal(axes(std::string("query_len = \"") + text + "\"")),
              ":3:13: query_len = '" + std::string(text) +
                  "', expected a whole number, a range such as \"512-65536*2\" or \"16-64+16\", "
                  "or a ratio such as \"16384/query_len\"");
}

TEST(SweepFile, RangesAndSweepsOfMoreThan100000ValuesAreRefused) {
  EXPECT_CONTAINS(refusal(axes("seed = \"1-9000000000000000000+1\"")),
                  ":3:8: seed = '1-9000000000000000000+1' has too many values");
  EXPECT_CONTAINS(refusal(axes("seed = \"1-100001+1\"")), ":3:8: seed = '1-100001+1' has too many values");
  const auto product = refusal(axes("seed = \"1-1000+1\"\nquery_len = \"1-1000+1\"\nbatch = \"1-1000+1\""));
  EXPECT_EQ(product, "sweep some has more than 100000 cases");
}

TEST(SweepFile, ExpandsToEveryCombinationAndTheLastFieldVariesFastest) {
  // The order of the axes is that of the fields of a case (method, protocol, query_len), and not that of the file.
  const auto cases = expand(
      "[axes]\nquery_len = [512, 1024]\nprotocol = [\"forward\", \"forward_backward\"]\n"
      "method = [\"softmax\", \"linear:chunk=64\"]\n");
  std::vector<std::string> found;
  for (const auto& c : cases) found.push_back(c.method + " " + c.protocol + " " + std::to_string(c.query_len));
  EXPECT_EQ(found, (std::vector<std::string>{"softmax forward 512", "softmax forward 1024", "softmax forward_backward 512",
                                             "softmax forward_backward 1024", "linear:chunk=64 forward 512",
                                             "linear:chunk=64 forward 1024", "linear:chunk=64 forward_backward 512",
                                             "linear:chunk=64 forward_backward 1024"}));
}

TEST(SweepFile, ARatioIsComputedFromAnotherAxis) {
  const auto cases = expand(axes("query_len = [512, 16384, 65536]\nbatch = \"16384/query_len\""));
  EXPECT_EQ(values(cases, &Case::batch), (Numbers{32, 1, 1}));
  EXPECT_EQ(values(expand(axes("batch = [\"4096/key_len\"]\nkey_len = 1000\nquery_len = 7")), &Case::batch), (Numbers{4}));
  // That axis may itself have its default from another one: here key_len is equal to query_len.
  EXPECT_EQ(values(expand(axes("query_len = 256\nbatch = \"1024/key_len\"")), &Case::batch), (Numbers{4}));
}

TEST(SweepFile, MalformedRatiosAreRefused) {
  for (const auto* text : {"16384/query_length", "16384/", "/query_len", "x/query_len", "0/query_len", "-3/query_len",
                           "1.5/query_len", "16384/batch", "16384/method", "16384/deadline_s", "16384//query_len"})
    EXPECT_CONTAINS(refusal(axes(std::string("batch = \"") + text + "\"")),
                    ":3:9: batch = '" + std::string(text) + "', expected");
  EXPECT_EQ(refusal(axes("batch = [\"16384/query_len\", 2]")),
            ":3:9: batch lists a ratio among other values, expected the ratio alone");
}

TEST(SweepFile, KeyLenDefaultsToQueryLenAndValueDimToHeadDim) {
  const auto cases = expand(axes("query_len = [512, 1024]\nhead_dim = [32, 80]"));
  ASSERT_EQ(cases.size(), 4u);
  for (const auto& c : cases) {
    EXPECT_EQ(c.key_len, c.query_len);
    EXPECT_EQ(c.value_dim, c.head_dim);
  }
  EXPECT_EQ(values(expand(axes("query_len = [512, 1024]\nkey_len = 300\nvalue_dim = 5")), &Case::key_len), (Numbers{300, 300}));
}

TEST(SweepFile, EqualCasesAreListedOnce) {
  EXPECT_EQ(values(expand(axes("query_len = [512, 1024, 512, \"256-1024*2\"]")), &Case::query_len), (Numbers{512, 1024, 256}));
  EXPECT_EQ(expand(axes("query_len = 512\nkey_len = [512, 300]\nbatch = \"16/query_len\"")).size(), 2u);
}

TEST(SweepFile, SettingsAreRead) {
  const auto c = expand(axes("") +
                        "[limits]\nmemory_limit_bytes = \"11 GiB\"\ndeadline_s = 7\n[timing]\nwarmup_s = 0\nmin_samples = 9\n"
                        "noise_target = 0.5\ntime_budget_s = 3.25\nprocesses = 3\ninjected_slowdown_percent = 2\n")[0];
  EXPECT_EQ(c.memory_limit_bytes, int64_t{11} << 30);
  EXPECT_EQ(c.deadline_s, 7);
  EXPECT_EQ(c.warmup_s, 0);
  EXPECT_EQ(c.min_samples, 9);
  EXPECT_EQ(c.noise_target, 0.5);
  EXPECT_EQ(c.time_budget_s, 3.25);
  EXPECT_EQ(c.processes, 3);
  EXPECT_EQ(c.injected_slowdown_percent, 2);
  EXPECT_EQ(expand(axes("") + "[limits]\nmemory_limit_bytes = 5000\n")[0].memory_limit_bytes, 5000);
}

TEST(SweepFile, ASettingTwiceOrInAnotherSectionIsRefused) {
  EXPECT_CONTAINS(refusal(axes("") + "[limits]\ndeadline_s = 7\ndeadline_s = 8\n"), "deadline_s");
  EXPECT_CONTAINS(refusal(axes("") + "[timing]\nmemory_limit_bytes = 7\n"), ":5:1: unknown key 'memory_limit_bytes' in [timing]");
  EXPECT_CONTAINS(refusal(axes("") + "[timing]\ndeadline_s = 7\n"), ":5:1: unknown key 'deadline_s' in [timing]");
}

// settings() has the values of the file and of the overrides. A memory limit that was not given stays 0 there, because the memory
// that happens to be free must not make the settings of two runs differ.
TEST(SweepFile, SettingsHaveTheValuesOfTheFileAndTheOverrides) {
  const TempFolder folder;
  const SweepFile sweep(folder.write("some.toml", axes("") + "[limits]\ndeadline_s = 7\n"), test_catalogue(),
                        {{}, {{"timing.time_budget_s", "3"}}});
  const auto settings = sweep.settings();
  EXPECT_EQ(settings["deadline_s"], 7.0);
  EXPECT_EQ(settings["time_budget_s"], 3.0);
  EXPECT_EQ(settings["memory_limit_bytes"], 0);
  EXPECT_FALSE(settings.contains("batch"));
}

TEST(SweepFile, KeyLengthsMayBeANumber) {
  EXPECT_EQ(expand(axes("key_lengths = \"300\""))[0].key_lengths, "300");
  EXPECT_EQ(expand(axes(""), {{}, {{"key_lengths", "300"}}})[0].key_lengths, "300");
  EXPECT_EQ(expand(axes("key_lengths = [\"full\", 300]"))[1].key_lengths, "300");
}

TEST(SweepOverrides, SetReplacesTheValuesOfAnAxis) {
  const auto text = axes("query_len = [512, 1024]\nbatch = \"1024/query_len\"");
  const auto with = [&](const char* key, const char* value) { return expand(text, {{}, {{key, value}}}); };
  EXPECT_EQ(values(with("query_len", "7"), &Case::query_len), (Numbers{7}));
  EXPECT_EQ(values(with("query_len", "512-2048*2"), &Case::query_len), (Numbers{512, 1024, 2048}));
  EXPECT_EQ(values(with("query_len", "\"512-2048*2\""), &Case::query_len), (Numbers{512, 1024, 2048}));
  EXPECT_EQ(values(with("query_len", "[3, 5]"), &Case::query_len), (Numbers{3, 5}));
  EXPECT_EQ(values(with("batch", "2"), &Case::batch), (Numbers{2, 2}));
  EXPECT_EQ(values(with("batch", "2048/query_len"), &Case::batch), (Numbers{4, 2}));
  EXPECT_EQ(values(with("heads", "16-64+16"), &Case::heads), (Numbers{16, 16, 32, 32, 48, 48, 64, 64}));
  EXPECT_TRUE(with("causal", "true")[0].causal);
  EXPECT_EQ(with("dtype", "bfloat16")[0].dtype, "bfloat16");
  EXPECT_EQ(with("method", "softmax")[0].method, "softmax");
  EXPECT_EQ(with("method", "linear:chunk=64")[0].method, "linear:chunk=64");
}

TEST(SweepOverrides, SetReplacesASettingByItsNameWithOrWithoutItsSection) {
  const auto with = [&](const char* key, const char* value) {
    return expand(axes("") + "[limits]\ndeadline_s = 7\n", {{}, {{key, value}}})[0];
  };
  for (const auto* key : {"memory_limit_bytes", "limits.memory_limit_bytes"}) {
    EXPECT_EQ(with(key, "4 GiB").memory_limit_bytes, int64_t{4} << 30);
    EXPECT_EQ(with(key, "\"4 GiB\"").memory_limit_bytes, int64_t{4} << 30);
    EXPECT_EQ(with(key, "4096").memory_limit_bytes, 4096);
  }
  for (const auto* key : {"deadline_s", "limits.deadline_s"}) EXPECT_EQ(with(key, "0.5").deadline_s, 0.5);
  for (const auto* key : {"min_samples", "timing.min_samples"}) EXPECT_EQ(with(key, "50").min_samples, 50);
}

TEST(SweepOverrides, TheLastOfSeveralOverridesOfAnAxisHolds) {
  EXPECT_EQ(values(expand(axes(""), {{}, {{"batch", "2"}, {"batch", "3"}}}), &Case::batch), (Numbers{3}));
}

TEST(SweepOverrides, MethodsReplaceThoseOfTheFile) {
  const auto methods = [](const std::vector<Case>& cases) {
    std::vector<std::string> all;
    for (const auto& c : cases) all.push_back(c.method);
    return all;
  };
  EXPECT_EQ(methods(expand(axes(""), {{"softmax", "linear:chunk=64"}, {}})),
            (std::vector<std::string>{"softmax", "linear:chunk=64"}));
  EXPECT_EQ(methods(expand("[axes]\nbatch = 2\n", {{"sdpa"}, {}})), (std::vector<std::string>{"sdpa"}));
}

TEST(SweepOverrides, InvalidOnesAreErrorsThatNameTheOption) {
  const auto refused = [](const char* key, const char* value) { return refusal(axes(""), {{}, {{key, value}}}); };
  EXPECT_CONTAINS(refused("query_length", "7"),
                  "--set: unknown key 'query_length'; did you mean 'query_len'?; known: method, device");
  EXPECT_CONTAINS(refused("limits.deadline", "7"), "--set: unknown key 'limits.deadline'; did you mean 'limits.deadline_s'?");
  EXPECT_CONTAINS(refused("timing.deadline_s", "7"), "--set: unknown key 'timing.deadline_s'; did you mean 'limits.deadline_s'?");
  EXPECT_CONTAINS(refused("axes.batch", "7"), "--set: unknown key 'axes.batch'");
  EXPECT_CONTAINS(refused("seconds", "7"), "--set: unknown key 'seconds'");
  EXPECT_EQ(refused("batch", "0"), "--set batch: batch = 0, expected at least 1");
  EXPECT_CONTAINS(refused("batch", "many"), "--set batch: batch = 'many', expected a whole number");
  EXPECT_EQ(refused("batch", "[]"), "--set batch: batch is an empty list, expected at least one value");
  EXPECT_EQ(refused("causal", "maybe"), "--set causal: causal = \"maybe\", expected true or false");
  EXPECT_EQ(refused("memory_limit_bytes", "11 GeV"),
            "--set memory_limit_bytes: '11 GeV' is not an amount of memory such as \"11 GiB\", \"500 MB\" or a number of bytes");
  EXPECT_EQ(refusal(axes(""), {{"sotfmax"}, {}}),
            "--methods: unknown method 'sotfmax'; did you mean 'softmax'?; known: linear, lsh-4, sdpa, softmax");
  EXPECT_EQ(refusal(axes(""), {{"linear:chnk=4"}, {}}),
            "--methods: method 'linear' has no option 'chnk'; did you mean 'chunk'?; known: chunk");
}

TEST(SweepErrors, UnknownKeysAreErrorsThatSuggestTheNearestKey) {
  EXPECT_EQ(refusal("descripton = \"x\"\n" + axes("")),
            ":1:1: unknown key 'descripton'; did you mean 'description'?; known: description, plugins, axes, limits, timing, "
            "quality, published");
  EXPECT_CONTAINS(refusal(axes("") + "[limit]\ndeadline_s = 3\n"), "unknown key 'limit'; did you mean 'limits'?");
  EXPECT_EQ(
      refusal(axes("  querylen = 512")),
      ":3:3: unknown key 'querylen' in [axes]; did you mean 'query_len'?; known: method, device, dtype, protocol, batch, heads, "
      "kv_heads, value_heads, "
      "query_len, key_len, head_dim, value_dim, causal, key_lengths, pattern, packed, sinks, inputs, concentration, "
      "decay_positions, "
      "threads, ranks, "
      "cache, "
      "allocation, graph, "
      "seed, "
      "baseline, shape");
  EXPECT_EQ(refusal(axes("") + "[limits]\ndeadline = 3\n"),
            ":5:1: unknown key 'deadline' in [limits]; did you mean 'deadline_s'?; known: memory_limit_bytes, deadline_s");
  EXPECT_EQ(
      refusal(axes("") + "[timing]\nmin_sample = 3\n"),
      ":5:1: unknown key 'min_sample' in [timing]; did you mean 'min_samples'?; known: warmup_s, min_samples, noise_target, "
      "time_budget_s, processes, baseline, max_disturbance, injected_slowdown_percent");
  EXPECT_EQ(refusal(axes("") + "[published]\npath = \"x\"\n"), ":5:1: unknown key 'path' in [published]; known: file");
  // A setting is not an axis, and an axis is not a setting.
  EXPECT_CONTAINS(refusal(axes("deadline_s = 3")), ":3:1: unknown key 'deadline_s' in [axes]");
  EXPECT_CONTAINS(refusal(axes("") + "[limits]\nbatch = 3\n"), ":5:1: unknown key 'batch' in [limits]");
}

TEST(SweepErrors, UnknownMethodsAndOptionsAreErrorsThatSuggestTheNearest) {
  EXPECT_EQ(refusal("[axes]\nmethod = [\"softmax\", \"linaer\"]\n"),
            ":2:22: unknown method 'linaer'; did you mean 'linear'?; known: linear, lsh-4, sdpa, softmax");
  EXPECT_EQ(refusal("[axes]\nmethod = \"linear:chunks=3\"\n"),
            ":2:10: method 'linear' has no option 'chunks'; did you mean 'chunk'?; known: chunk");
  EXPECT_EQ(refusal("[axes]\nmethod = \"linear:chunk\"\n"),
            ":2:10: method 'linear:chunk': 'chunk' is not of the form option=value");
  EXPECT_EQ(refusal("[axes]\nmethod = \"softmax:chunk=3\"\n"), ":2:10: method 'softmax' has no option 'chunk'; none are known");
  EXPECT_CONTAINS(refusal("[axes]\nmethod = \"quadratic-attention\"\n"),
                  ":2:10: unknown method 'quadratic-attention'; known: linear");
  EXPECT_EQ(refusal("[axes]\nbatch = 2\n"), ": [axes] names no method");
  EXPECT_EQ(refusal(""), ": [axes] names no method");
}

TEST(SweepErrors, WrongTypesAndValuesAreErrorsThatNameTheirPlace) {
  EXPECT_EQ(refusal(axes("batch = -3")), ":3:9: batch = -3, expected at least 1");
  EXPECT_EQ(refusal(axes("batch = [1, 2, 0]")), ":3:16: batch = 0, expected at least 1");
  EXPECT_EQ(refusal(axes("batch = 1.5")), ":3:9: batch = 1.5, expected a whole number");
  EXPECT_EQ(refusal(axes("batch = true")), ":3:9: batch = true, expected a whole number");
  EXPECT_EQ(refusal(axes("batch = 1979-05-27")), ":3:9: batch is a date or time, expected a single value");
  EXPECT_EQ(refusal(axes("batch = [[1]]")), ":3:10: batch is a list, expected a single value");
  EXPECT_EQ(refusal(axes("batch = {least = 1}")), ":3:9: batch is a table, expected a single value");
  EXPECT_EQ(refusal(axes("batch = []")), ":3:9: batch is an empty list, expected at least one value");
  EXPECT_EQ(refusal(axes("causal = \"true\"")), ":3:10: causal = \"true\", expected true or false");
  EXPECT_EQ(refusal(axes("dtype = \"float\"")), ":3:9: dtype = 'float', expected one of float32, float64, bfloat16, float16");
  EXPECT_EQ(refusal(axes("dtype = 32")), ":3:9: dtype = 32, expected text");
  EXPECT_EQ(refusal("description = 3\n" + axes("")), ":1:15: description is a whole number, expected text");
  EXPECT_EQ(refusal("axes = 3\n"), ":1:8: axes is a whole number, expected a table [axes]");
  EXPECT_EQ(refusal("limits = \"much\"\n" + axes("")), ":1:10: limits is text, expected a table [limits]");
  EXPECT_EQ(refusal(axes("") + "[published]\nfile = 3\n"), ":5:8: file is a whole number, expected text");
  EXPECT_EQ(refusal(axes("") + "[limits]\nmemory_limit_bytes = \"lots\"\n"),
            ":5:22: 'lots' is not an amount of memory such as \"11 GiB\", \"500 MB\" or a number of bytes");
  EXPECT_CONTAINS(refusal(axes("") + "[limits]\nmemory_limit_bytes = -1\n"),
                  ":5:22: memory_limit_bytes = -1, expected at least 0");
  EXPECT_CONTAINS(refusal(axes("") + "[limits]\ndeadline_s = [1, 2]\n"),
                  ":5:14: limits.deadline_s is a list, expected a single value");
  EXPECT_CONTAINS(refusal(axes("") + "[limits]\ndeadline_s = inf\n"), ":5:14: deadline_s = ");
  EXPECT_CONTAINS(refusal(axes("") + "[timing]\nmin_samples = 1\n"), ":5:15: min_samples = 1, expected at least 5");
}

TEST(SweepErrors, MalformedTomlIsAnErrorThatNamesTheLine) {
  const std::map<std::string, std::string> texts = {
      {"[axes]\nmethod = \"linear\n", ":2:"},
      {"[axes]\nmethod = \"linear\"\nbatch = \n", ":3:"},
      {"[axes]\nmethod = \"linear\"\nbatch = 1\nbatch = 2\n", ":4:"},
      {"[axes\nmethod = \"linear\"\n", ":1:"},
      {"[`\x01", ":1:"},
      {"[axes]\n\xff\xfe = 3\n", ":"},
      {"[axes]\nmethod = \"linear\"\nbatch = 99999999999999999999\n", ":3:"},
      {"= 3\n", ":1:"},
      {"\xef\xbb\xaf = 3\n", ":1:"},
      {"\xc3\xa9 = 3\n", ":1:"},
      {std::string("[axes]\nmethod = \"a\0b\"\n", 21), ":2:"},
      {std::string(5000, '['), ":1:"},
      {"a = " + std::string(5000, '['), ":1:"},
  };
  for (const auto& [text, where] : texts) {
    const auto message = refusal(text);
    EXPECT_TRUE(message.starts_with(where)) << message << "\nfor: " << text.substr(0, 60);
    EXPECT_GT(message.size(), 8u) << message;
  }
}

TEST(SweepErrors, MissingFilesAreErrorsThatNameThem) {
  const TempFolder folder;
  const auto path = folder.path("none.toml");
  EXPECT_CONTAINS(message_of<UsageError>([&] { SweepFile(path, test_catalogue()); }), path + ": ");
  EXPECT_CONTAINS(message_of<UsageError>([&] { SweepFile(folder.path(), test_catalogue()); }), folder.path());
  EXPECT_CONTAINS(refusal(axes("") + "[published]\nfile = \"none.csv\"\n"), "none.csv: cannot open");
}

TEST(SweepFile, PathOfThePublishedFileIsRelativeToTheSweepFile) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("published"));
  folder.write("published/p.csv", "method,query_len,time_ms\nlinear,512,3.5\n");
  const SweepFile sweep(folder.write("some.toml", axes("query_len = [512, 1024]") + "[published]\nfile = \"published/p.csv\"\n"),
                        test_catalogue());
  const auto cases = sweep.cases();
  ASSERT_EQ(cases.size(), 2u);
  Record first(cases[0]), second(cases[1]);
  sweep.published().annotate(first);
  sweep.published().annotate(second);
  EXPECT_EQ(first.number("published_time_ms"), 3.5);
  EXPECT_FALSE(second.has("published_time_ms"));
}

// The sweeps of the project must stay readable.
TEST(SweepFile, SweepFilesOfTheProjectAreValid) {
  const std::filesystem::path folder = ATTNBENCH_SWEEPS;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".toml") continue;
    std::ifstream methods(std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "methods.json");
    if (!methods) GTEST_SKIP() << "no methods.json was built";
    const TempFolder built;
    const auto worker = built.write("attnbench-worker", "");
    built.write("libattn.so", "");
    built.write("methods.json", {std::istreambuf_iterator<char>(methods), {}});
    const SweepFile sweep(entry.path().string(), Catalogue::load({worker}));
    EXPECT_FALSE(sweep.cases().empty()) << entry.path();
    EXPECT_FALSE(sweep.description().empty()) << entry.path();
  }
}

// ------------------------------------------------------------ several tables of axes, and baselines

TEST(SweepFile, SaysWhereItSetsAnAxisOfACase) {
  const TempFolder folder;
  const auto path = folder.write("some.toml",
                                 "[[axes]]\nmethod = \"softmax\"\nquery_len = [8, 16]\n\n[[axes]]\nmethod = \"linear\"\nbatch = "
                                 "\"64/query_len\"\nkey_len = 32\n");
  SweepOverrides overrides;
  overrides.add_setting("heads=3");
  const SweepFile sweep(path, test_catalogue(), overrides);
  const auto cases = sweep.cases();
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(sweep.origin_of(cases[1], "query_len"), path + ":3:17");
  EXPECT_EQ(sweep.origin_of(cases[2], "method"), path + ":6:10");
  EXPECT_EQ(sweep.origin_of(cases[2], "key_len"), path + ":8:11");
  EXPECT_EQ(sweep.origin_of(cases[2], "heads"), "--set heads");
  for (const auto* unset : {"batch", "value_dim", "no_such_axis", ""}) EXPECT_EQ(sweep.origin_of(cases[2], unset), "") << unset;
}

TEST(SweepFile, SeveralTablesOfAxesAddTheirCases) {
  const auto cases = expand(
      "[[axes]]\nmethod = [\"linear\", \"sdpa\"]\nquery_len = [64, 128]\n"
      "[[axes]]\nmethod = \"linear\"\nprotocol = \"decode\"\nquery_len = 256\n"
      "[[axes]]\nmethod = \"linear\"\nquery_len = 64\n");
  EXPECT_EQ(values(cases, &Case::query_len), (Numbers{64, 128, 64, 128, 256})) << "the last table repeats a case";
  EXPECT_EQ(cases.back().protocol, "decode");
  EXPECT_EQ(cases.front().protocol, "forward");
}

TEST(SweepFile, OptionsOfTheCommandLineChangeEveryTableOfAxes) {
  const std::string text = "[[axes]]\nmethod = \"linear\"\n[[axes]]\nmethod = \"linear\"\nprotocol = \"decode\"\n";
  SweepOverrides overrides;
  overrides.add_setting("query_len=32");
  EXPECT_EQ(values(expand(text, overrides), &Case::query_len), (Numbers{32, 32}));
  overrides.methods = {"sdpa"};
  for (const auto& c : expand(text, overrides)) EXPECT_EQ(c.method, "sdpa");
}

TEST(SweepFile, ATableOfAxesMayHaveItsOwnBaseline) {
  const std::string text =
      "[[axes]]\nmethod = \"linear\"\n"
      "[[axes]]\nmethod = \"linear\"\nprotocol = \"decode\"\nbaseline = \"linear query_len=64\"\n"
      "[timing]\nbaseline = \"sdpa\"\n";
  const auto cases = expand(text);
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].baseline, "sdpa");
  EXPECT_EQ(cases[1].baseline, "linear query_len=64");
  SweepOverrides overrides;
  overrides.add_setting("timing.baseline=");
  for (const auto& c : expand(text, overrides)) EXPECT_EQ(c.baseline, "");
}

TEST(SweepErrors, ACaseWithTwoBaselinesIsAnError) {
  EXPECT_CONTAINS(refusal("[[axes]]\nmethod = \"linear\"\nbaseline = \"sdpa\"\n[[axes]]\nmethod = \"linear\"\n"),
                  "has a case with two baselines, 'sdpa' and '', expected one: method=\"linear\"");
}

TEST(SweepErrors, AWrongBaselineIsAnErrorThatSaysWhere) {
  const auto with = [](const std::string& baseline) { return refusal(axes("") + "[timing]\nbaseline = \"" + baseline + "\"\n"); };
  EXPECT_CONTAINS(with("sdqa"), ":5:12: unknown method 'sdqa'");
  EXPECT_CONTAINS(with("sdpa query_length=3"), ":5:12: baseline = 'sdpa query_length=3': 'query_length=3' is not an axis");
  EXPECT_CONTAINS(with("sdpa query_len=0"), ":5:12: query_len = 0, expected at least 1");
}

}  // namespace
}  // namespace attnbench
