// Tests of tables in text, Markdown and CSV, and of the tables of records.
#include <gtest/gtest.h>

#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

Record measured(const std::string& method, int64_t query_len) {
  Case c;
  c.noise_target = 0.1;
  c.method = method;
  c.query_len = query_len;
  c.complete();
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("time_median_ms", 2.0);
  record.set("time_ci_low_ms", 1.9);
  record.set("time_ci_high_ms", 2.05);
  record.set("time_per_sample_ms", 0.5);
  record.set("peak_extra_bytes", 3 << 20);
  record.set("peak_extra_bytes_per_sample", double(1 << 20));
  record.set("max_rel_error", 1.25e-7);
  record.set("implementation", "aten/matmul");
  return record;
}

TEST(TextTable, AlignsColumnsByCharactersNotBytes) {
  TextTable table({"method", right("time")});
  table.add_row({"softmax", "12.3 µs"});
  table.add_row({"O(N²)", "5 s"});
  EXPECT_EQ(table.render(),
            "method      time\n"
            "────────────────\n"
            "softmax  12.3 µs\n"
            "O(N²)        5 s\n");
}

TEST(TextTable, FillsShortRowsAndReplacesControlCharacters) {
  TextTable table({"a", "b"});
  table.add_row({"two\nlines\x1b[2J"});
  EXPECT_EQ(table.render(),
            "a              b\n"
            "────────────────\n"
            "two lines [2J\n");
  EXPECT_EQ(TextTable().render(), "\n\n");
}

TEST(TextTable, ColoursRowsByTheirTone) {
  TextTable table({"a"});
  table.add_row({"fine"});
  table.add_row({"wrong"}, Tone::bad);
  table.add_row({"not run"}, Tone::faint);
  EXPECT_EQ(table.render(TableFormat::text, /*colours=*/true),
            "\x1b[1ma\x1b[0m\n"
            "───────\n"
            "fine\n"
            "\x1b[31mwrong\x1b[0m\n"
            "\x1b[2mnot run\x1b[0m\n");
  EXPECT_EQ(table.render(), "a\n───────\nfine\nwrong\nnot run\n");
}

TextTable wide_table() {
  TextTable table({"method", right("time of a call"), right("error"), "reason", "source"},
                  {.answers = {"method", "time of a call", "reason"}, .left_out_first = {"error"}});
  table.add_row({"softmax", "12.3 µs", "1.2e-07", "it needs 16.0 GiB and the limit is 11.0 GiB", "here"});
  return table;
}

TEST(TextTable, IsMadeNarrowerInTheStatedOrderAndSaysHow) {
  const auto rendered = [](size_t width) { return wide_table().render(TableFormat::text, /*colours=*/false, width); };
  EXPECT_EQ(rendered(0), wide_table().render());
  EXPECT_EQ(rendered(100), wide_table().render());
  // First headers and long texts are wrapped, then the column is left out that the table names.
  EXPECT_EQ(rendered(80),
            "method   time of a    error  reason                                       source\n"
            "              call\n"
            "────────────────────────────────────────────────────────────────────────────────\n"
            "softmax    12.3 µs  1.2e-07  it needs 16.0 GiB and the limit is 11.0 GiB  here\n");
  EXPECT_EQ(rendered(56),
            "method   time of  reason                          source\n"
            "          a call\n"
            "────────────────────────────────────────────────────────\n"
            "softmax  12.3 µs  it needs 16.0 GiB and the       here\n"
            "                  limit is 11.0 GiB\n"
            "(the terminal has 56 columns; not shown: error)\n");
  // Then texts become narrower, and columns are left out from the right, but never one that answers.
  EXPECT_EQ(rendered(30),
            "method   time of  reason\n"
            "          a call\n"
            "──────────────────────────────\n"
            "softmax  12.3 µs  it needs\n"
            "                  16.0 GiB and\n"
            "                  the limit is\n"
            "                  11.0 GiB\n"
            "(the terminal has 30 columns;\n"
            "not shown: error, source)\n");
  // At last each row is a list.
  EXPECT_EQ(rendered(20),
            "method: softmax\n"
            "time of a call: 12.3\n"
            "µs\n"
            "reason: it needs\n"
            "16.0 GiB and the\n"
            "limit is 11.0 GiB\n"
            "(the terminal has 20\n"
            "columns; not shown:\n"
            "error, source)\n");
}

TEST(TextTable, NamesWhatAllRowsShareAboveItself) {
  TextTable table({"method", "device", "note", "verdict"}, {.answers = {"method", "verdict"}});
  table.add_common("heads", "8");
  table.add_row({"linear", "cpu", "", "faster"});
  EXPECT_EQ(table.render().find("In all rows"), std::string::npos) << "a single row";
  table.add_row({"lsh-1", "cpu", "", "faster"});
  EXPECT_EQ(table.render(),
            "In all rows: heads=8, device=cpu\n"
            "method  verdict\n"
            "───────────────\n"
            "linear  faster\n"
            "lsh-1   faster\n");
  EXPECT_EQ(table.render(TableFormat::csv), "method,device,note,verdict\nlinear,cpu,,faster\nlsh-1,cpu,,faster\n");
}

TEST(TextTable, WrapsAListOfNamesAtItsLimit) {
  TextTable table({"than"});
  table.limit_width("than", 12);
  table.add_row({"softmax, linear, lsh:rounds=4,profile=fast-transformers"});
  EXPECT_EQ(table.render(),
            "than\n"
            "────────────\n"
            "softmax,\n"
            "linear, lsh:\n"
            "rounds=4,\n"
            "profile=\n"
            "fast-\n"
            "transformers\n");
}

TEST(TextTable, MarkdownEscapesSpecialCharacters) {
  TextTable table({"name", right("n")});
  table.add_row({"a|b*_`<i>[x]\\", "1"});
  table.add_row({"two\nlines", "23456"});
  EXPECT_EQ(table.render(TableFormat::markdown),
            "| name                   |     n |\n"
            "| ---------------------- | ----: |\n"
            "| a\\|b\\*\\_\\`\\<i\\>\\[x\\]\\\\ |     1 |\n"
            "| two lines              | 23456 |\n");
}

TEST(TextTable, CsvQuotesCellsAndEscapesFormulas) {
  TextTable table({"name", right("n")});
  table.add_row({"=HYPERLINK(\"x\")", "1"});
  table.add_row({"a,b", "2"});
  EXPECT_EQ(table.render(TableFormat::csv), "name,n\n\"'=HYPERLINK(\"\"x\"\")\",1\n\"a,b\",2\n");
}

TEST(SummaryTable, HasAColumnForEachAxisThatVaries) {
  const auto text = summary_table({measured("softmax", 512), measured("linear", 1024)}).render(TableFormat::csv);
  EXPECT_EQ(text,
            "method,query_len,time,time/sequence,interval,memory/sequence,rounding error,implementation,outcome\n"
            "softmax,512,2.00 ms,500 µs,±5.0 %,1.00 MiB,1.2e-07,aten/matmul,measured\n"
            "linear,1024,2.00 ms,500 µs,±5.0 %,1.00 MiB,1.2e-07,aten/matmul,measured\n");
  auto other = measured("softmax", 512), cross = measured("softmax", 512);
  other.set("dtype", "bfloat16");
  cross.set("key_len", 700);
  EXPECT_TRUE(
      summary_table({measured("softmax", 512), other}).render(TableFormat::csv).starts_with("method,dtype,query_len,time,"));
  EXPECT_TRUE(
      summary_table({measured("softmax", 512), cross}).render(TableFormat::csv).starts_with("method,query_len,key_len,time,"));
}

TEST(SummaryTable, ShowsEveryOutcome) {
  Case c;
  c.method = "softmax";
  c.complete();
  Record failed(c), skipped(c);
  failed.set_failed(kind::invalid, "wrong");
  skipped.set_skipped(kind::predicted_oom, "too large");
  auto implausible = measured("linear", 512), published = measured("sdpa", 512);
  implausible.set("implausible", "too fast");
  published.set("published_outcome", "oom");
  published.set("published_time_ms", 3.0);
  const auto text = summary_table({failed, skipped, implausible, published}).render(TableFormat::csv);
  EXPECT_CONTAINS(text, "softmax,1024,–,–,,–,–,,failed: invalid,\n");
  EXPECT_CONTAINS(text, "softmax,1024,–,–,,–,–,,skipped: predicted_oom,\n");
  EXPECT_CONTAINS(text, ",aten/matmul,implausible,\n");
  EXPECT_CONTAINS(text, ",aten/matmul,measured,\"oom, 3.00 ms\"\n");
}

TEST(SummaryTable, WarnsAboutTimesThatAreNotSure) {
  auto noisy = measured("linear", 512), disturbed = noisy, suspect = noisy;
  noisy.set("time_ci_high_ms", 2.3);
  disturbed.set("disturbed_processes", 1);
  suspect.set("suspect", "page faults");
  const auto text = summary_table({noisy, disturbed, suspect}).render(TableFormat::csv);
  for (const auto* warning : {"noisy", "disturbed", "suspect"})
    EXPECT_CONTAINS(text, std::string(",aten/matmul,\"measured, ") + warning + "\"\n");
}

TEST(SummaryTable, HasAColumnOfRatiosIfThereIsABaseline) {
  auto with = measured("linear", 512), without = measured("rff", 512);
  for (auto* record : {&with, &without}) record->set("baseline", "sdpa");
  with.set("ratio_pairing", "turns");
  with.set("ratio_median", 0.125);
  with.set("ratio_ci_low", 0.12);
  with.set("ratio_ci_high", 0.1275);
  without.set("ratio_failure_kind", kind::crashed);
  without.set("ratio_reason", "it died");
  const auto text = summary_table({with, without}).render(TableFormat::csv);
  EXPECT_TRUE(text.starts_with("method,query_len,time,time/sequence,interval,time / sdpa,")) << text;
  EXPECT_CONTAINS(text, ",0.125 ±4.0 %,");
  EXPECT_CONTAINS(text, ",none,");
  EXPECT_CONTAINS(text_of(answer_of(without)), "  time / sdpa                  none: crashed: it died\n");
  without.set("ratio_failure_kind", nullptr);
  EXPECT_CONTAINS(text_of(answer_of(without)), "  time / sdpa                  none: it died\n");
}

TEST(SummaryTable, CallsAnIntervalWhatItCovers) {
  auto record = measured("linear", 512);
  const auto row = [&](const char* scope) {
    record.set("time_ci_scope", scope);
    return summary_table({record}).render(TableFormat::csv);
  };
  EXPECT_CONTAINS(row("across processes"), ",±5.0 %,");
  EXPECT_CONTAINS(row("range of processes"), ",range ±5.0 %,");
  EXPECT_CONTAINS(row("spread within process"), ",spread ±5.0 %,");
}

TEST(SummaryTable, WithoutRecordsHasItsHeader) {
  EXPECT_TRUE(summary_table({}).render(TableFormat::csv).starts_with("method,query_len,time,"));
}

TEST(ColumnTable, ShowsTheStoredValuesOfTheChosenColumns) {
  const auto record = measured("linear", 512);
  EXPECT_EQ(column_table({record}, {"query_len", "time_median_ms", "reason", "causal"}).render(TableFormat::csv),
            "query_len,time_median_ms,reason,causal\n512,2.0,,false\n");
  EXPECT_CONTAINS(message_of<UsageError>([&] { column_table({record}, {"time_medain_ms"}); }),
                  "unknown column 'time_medain_ms'; did you mean 'time_median_ms'?; known: schema_version, method");
}

TEST(ColumnTable, FindsDiagnostics) {
  auto linear = measured("linear", 512), lsh = measured("lsh", 512);
  lsh.set("diagnostics", {{"lsh_bucket_mean", 12.5}, {"depth", 3}});
  EXPECT_EQ(column_table({linear, lsh}, {"method", "lsh_bucket_mean", "depth"}).render(TableFormat::csv),
            "method,lsh_bucket_mean,depth\nlinear,,\nlsh,12.5,3\n");
  EXPECT_CONTAINS(message_of<UsageError>([&] { column_table({linear}, {"depth"}); }), "unknown column 'depth'");
  EXPECT_CONTAINS(message_of<UsageError>([&] { column_table({lsh}, {"deph"}); }), "did you mean 'depth'?");
}

TEST(CaseNames, AreDifferentForDifferentCases) {
  auto plain = measured("linear", 512), other = plain, longer = measured("linear", 1024), causal = plain;
  other.set("dtype", "bfloat16");
  causal.set("causal", true);
  EXPECT_EQ(CaseNames({plain, longer, causal}).of(plain), "linear forward N=512");
  EXPECT_EQ(CaseNames({plain, longer, causal}).of(causal), "linear forward N=512 causal");
  EXPECT_EQ(CaseNames({plain, other}).of(other), "linear forward N=512 dtype=bfloat16");
  // An axis that follows from those that are named is left out, as the batch of sweeps with a fixed number of tokens.
  longer.set("batch", 3);
  EXPECT_EQ(CaseNames({plain, longer}).of(longer), "linear forward N=1024");
  auto replayed = other;
  replayed.set("graph", true);
  EXPECT_EQ(CaseNames({plain, other, replayed}).of(replayed), "linear forward N=512 dtype=bfloat16 graph");
  EXPECT_EQ(CaseNames({plain, other, replayed}).of(plain), "linear forward N=512 dtype=float32");
}

TEST(SkippedInWords, CountsTheCasesOfEachReason) {
  auto first = measured("softmax", 512), second = measured("softmax", 1024), third = measured("rff", 512);
  first.set_skipped(kind::predicted_oom, "needs 16 GiB");
  second.set_skipped(kind::predicted_oom, "needs 64 GiB");
  third.set_skipped(kind::unsupported, "no causal form");
  EXPECT_EQ(skipped_in_words({measured("linear", 512), third, first, second}),
            (std::vector<std::string>{"1 case is skipped as unsupported: no causal form",
                                      "2 cases are skipped as predicted_oom, for example softmax forward N=512: needs 16 GiB"}));
  EXPECT_TRUE(skipped_in_words({measured("linear", 512)}).empty());
}

TEST(Answer, IsThreeLinesUnlessSomethingIsWrong) {
  auto record = measured("linear", 512);
  record.set("processes", 1);
  record.set("samples", 57);
  record.set("threads", 2);
  record.set("error_tolerance", 5e-4);
  EXPECT_EQ(text_of(answer_of(record)),
            "  time                         2.00 ms ±5.0 %, in 1 process of 57 samples\n"
            "  memory                       3.00 MiB above the inputs; rounding error 1.2e-07 (at most 5.0e-04 accepted)\n"
            "  implementation               aten/matmul on 2 threads\n");
  record.set("implausible", "too fast");
  record.set("baseline", "sdpa");
  record.set("ratio_pairing", "turns");
  record.set("ratio_median", 0.125);
  EXPECT_CONTAINS(text_of(answer_of(record)), "  time / sdpa                  0.125\n  implausible                  too fast\n");
  Record failed = measured("linear", 512);
  failed.set_failed(kind::crashed, "signal 11");
  EXPECT_EQ(text_of(answer_of(failed)),
            "  outcome                      failed: crashed\n  reason                       signal 11\n");
}

TEST(ResultInWords, IsTimeAndMemoryOrTheReasonOfTheFailure) {
  EXPECT_EQ(result_in_words(measured("linear", 512)), "2.00 ms ±5.0 %, 3.00 MiB above the inputs");
  Record record;
  record.set_failed(kind::crashed, "signal 11");
  EXPECT_EQ(result_in_words(record), "failed: crashed (signal 11)");
}

TEST(RecordSheet, ShowsEveryValueUnderItsGroup) {
  auto record = measured("linear", 512);
  record.set("time_samples_ms", Json::array({1.0, 2.0}));
  record.set("worker_s", 1.234567);
  const auto sheet = text_of(sheet_of(record));
  EXPECT_TRUE(sheet.starts_with("case\n"));
  EXPECT_CONTAINS(sheet, "  method                       linear\n");
  EXPECT_CONTAINS(sheet, "\noutcome\n  outcome                      measured\n");
  EXPECT_CONTAINS(sheet, "  worker_s                     1.23 s\n");
  EXPECT_CONTAINS(sheet, "  time_median_ms               2.00 ms\n");
  EXPECT_CONTAINS(sheet, "  peak_extra_bytes             3.00 MiB\n");
  EXPECT_FALSE(contains(sheet, "time_samples_ms"));
  EXPECT_FALSE(contains(sheet, "\nquality\n"));
  record.set("diagnostics", {{"lsh_bucket_mean", 12.5}});
  EXPECT_CONTAINS(text_of(sheet_of(record)), "\nquality\n  lsh_bucket_mean              12.5\n");
  EXPECT_FALSE(contains(sheet, "reason"));
}

}  // namespace
}  // namespace attnbench
