// Tests of a folder of records: reading and writing it, and that a killed writer, a full disk or a second writer damages no
// record.
#include "harness/records/result_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include "harness/files/csv_file.h"
#include "harness/records/provenance.h"
#include "harness/records/record_folders.h"
#include "harness/records/records_csv.h"
#include "harness/schema/schema.h"
#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

Record some_record(int64_t query_len, double time_ms = 1) {
  Case c;
  c.method = "linear";
  c.query_len = query_len;
  c.threads = 2;
  c.memory_limit_bytes = 1 << 30;
  c.complete();
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("time_median_ms", time_ms);
  record.set("time_samples_ms", Json::array({time_ms, time_ms + 1}));
  return record;
}

std::vector<int64_t> lengths(const std::vector<Record>& records) {
  std::vector<int64_t> all;
  for (const auto& record : records) all.push_back(record.get("query_len").get<int64_t>());
  return all;
}

using Lengths = std::vector<int64_t>;

// Runs `work` in a child process, which exits with its result.
pid_t in_child(const std::function<int()>& work) {
  const auto child = fork();
  if (child != 0) return child;
  int code = 99;
  try {
    code = work();
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
  }
  _exit(code);
}

int exit_code(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Simulates a full disk: while this object exists, no file that this process writes can grow beyond `max_bytes`.
class FullDisk {
 public:
  explicit FullDisk(uint64_t max_bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    auto limit = before_;
    limit.rlim_cur = max_bytes;
    handler_ = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(ResultFolder, AReopenedFolderHasItsRecords) {
  const TempFolder temp;
  const auto path = temp.path("results/sweep/machine");
  {
    ResultFolder folder(path);
    EXPECT_TRUE(folder.records().empty());
    folder.append(some_record(512));
    folder.append(some_record(1024));
    EXPECT_EQ(lengths(folder.records()), (Lengths{512, 1024}));
  }
  ResultFolder folder(path);
  EXPECT_EQ(lengths(folder.records()), (Lengths{512, 1024}));
  EXPECT_EQ(folder.records()[0].to_json().dump(), some_record(512).to_json().dump());
  EXPECT_NE(folder.find(some_record(512).key()), nullptr);
  EXPECT_EQ(folder.find(some_record(99).key()), nullptr);
  folder.append(some_record(2048));
  EXPECT_EQ(lengths(read_records(path)), (Lengths{512, 1024, 2048}));
  EXPECT_EQ(lengths(read_records(path + "/records.jsonl")), (Lengths{512, 1024, 2048}));
}

TEST(ResultFolder, RecordsAreOnDiskAsSoonAsAppended) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  folder.append(some_record(512));
  EXPECT_EQ(lengths(read_records(temp.path())), (Lengths{512}));
  const auto text = temp.read("records.jsonl");
  EXPECT_EQ(text, some_record(512).to_json().dump() + "\n");
}

TEST(ResultFolder, LastRecordOfACaseWins) {
  const TempFolder temp;
  {
    ResultFolder folder(temp.path());
    folder.append(some_record(512, 1));
    folder.append(some_record(1024, 2));
    folder.append(some_record(512, 3));
    EXPECT_EQ(lengths(folder.records()), (Lengths{512, 1024}));
    EXPECT_EQ(folder.find(some_record(512).key())->number("time_median_ms"), 3);
  }
  const auto records = read_records(temp.path());
  EXPECT_EQ(lengths(records), (Lengths{512, 1024}));
  EXPECT_EQ(records[0].number("time_median_ms"), 3);
  EXPECT_EQ(ResultFolder(temp.path()).records()[0].number("time_median_ms"), 3);
}

// A writer can be killed after any byte of a line.
TEST(ResultFolder, AnIncompleteLastLineOfAnyLengthIsRemoved) {
  const TempFolder temp;
  const auto first = some_record(512).to_json().dump() + "\n", second = some_record(1024).to_json().dump() + "\n";
  const auto last = some_record(2048).to_json().dump() + "\n";
  const auto log = temp.path("records.jsonl");
  for (size_t written = 0; written < last.size(); ++written) {
    temp.write("records.jsonl", first + second + last.substr(0, written));
    if (written % 13 == 0) {
      ASSERT_EQ(lengths(read_records(temp.path())), (Lengths{512, 1024})) << written << " bytes of the last line";
    }
    ResultFolder folder(temp.path());
    ASSERT_EQ(lengths(folder.records()), (Lengths{512, 1024})) << written << " bytes of the last line";
    ASSERT_EQ(std::filesystem::file_size(log), first.size() + second.size()) << written << " bytes of the last line";
    // The next record must begin a line of its own.
    if (written % 97 != 0) continue;
    folder.append(some_record(4096));
    ASSERT_EQ(temp.read("records.jsonl"), first + second + some_record(4096).to_json().dump() + "\n");
  }
  temp.write("records.jsonl", first + second + last);
  EXPECT_EQ(lengths(read_records(temp.path())), (Lengths{512, 1024, 2048}));
}

TEST(ResultFolder, AnIncompleteOnlyLineIsNoRecord) {
  const TempFolder temp;
  for (const auto* text : {"", "{", "{\"schema_ver", "\xff\xfe"}) {
    temp.write("records.jsonl", text);
    EXPECT_TRUE(read_records(temp.path()).empty()) << text;
    EXPECT_TRUE(ResultFolder(temp.path()).records().empty()) << text;
  }
}

TEST(ResultFolder, AMalformedLineIsAnErrorThatNamesTheLine) {
  const TempFolder temp;
  const auto good = some_record(512).to_json().dump() + "\n";
  const auto log = temp.path("records.jsonl");
  const std::pair<const char*, const char*> lines[] = {
      {"{\"method\": \n", ":2:12: not a record: "},
      {"\n", ":2:1: not a record: "},
      {"[]\n", ":2: not a record: a record is array, expected an object"},
      {"{\"speed\": 3}\n", "a record has no column 'speed'"},
      {"{\"batch\": \"3\"}\n", "column batch = \"3\", expected integer"},
      {"{\"samples\": 1e999}\n", "not a record: "},
      {"\xff\n", ":2:1: not a record: "},
  };
  for (const auto& [line, reason] : lines) {
    for (const auto& text : {good + line + good, good + line}) {
      temp.write("records.jsonl", text);
      const auto reading = message_of<UsageError>([&] { read_records(temp.path()); });
      EXPECT_TRUE(reading.starts_with(log + ":2:")) << reading;
      EXPECT_CONTAINS(reading, reason);
      EXPECT_EQ(message_of<UsageError>([&] { ResultFolder folder(temp.path()); }), reading);
      EXPECT_EQ(temp.read("records.jsonl"), text) << "a file that is not understood must be left as it is";
    }
  }
}

TEST(ResultFolder, ARecordWithoutARequiredColumnIsAnErrorThatNamesTheColumn) {
  const TempFolder temp;
  for (const char* column : {"method", "query_len", "graph", "outcome"}) {
    auto json = some_record(512).to_json();
    json.erase(column);
    temp.write("records.jsonl", json.dump() + "\n");
    EXPECT_CONTAINS(message_of<UsageError>([&] { read_records(temp.path()); }),
                    ":1: not a record: it has no " + std::string(column));
  }
}

TEST(ResultFolder, ADeeplyNestedLineIsAnError) {
  const TempFolder temp;
  temp.write("records.jsonl", std::string(200'000, '[') + "\n");
  EXPECT_CONTAINS(message_of<UsageError>([&] { read_records(temp.path()); }), ":1: not a record");
}

TEST(ResultFolder, MissingRecordsAreAnErrorThatNamesTheFile) {
  const TempFolder temp;
  EXPECT_EQ(message_of<UsageError>([&] { read_records(temp.path()); }),
            temp.path("records.jsonl") + ": no such file, expected records of a sweep");
  EXPECT_EQ(message_of<UsageError>([&] { read_records(temp.path("none")); }),
            temp.path("none") + ": no such file, expected records of a sweep");
}

TEST(ResultFolder, APathThatCannotBeAFolderIsAnErrorThatNamesThePath) {
  const TempFolder temp;
  temp.write("file", "");
  EXPECT_CONTAINS(message_of<UsageError>([&] { ResultFolder folder(temp.path("file/inside")); }), temp.path("file/inside"));
  EXPECT_CONTAINS(message_of<UsageError>([&] { ResultFolder folder(temp.path("file")); }), temp.path("file"));
}

TEST(ResultFolder, ASecondProcessIsRefusedAndToldWhichProcessUsesTheFolder) {
  const TempFolder temp;
  {
    ResultFolder folder(temp.path());
    const auto refused = [&] {
      return message_of<UsageError>([&] { ResultFolder second(temp.path()); }) ==
                     temp.path() + ": in use by process " + std::to_string(getppid())
                 ? 0
                 : 1;
    };
    EXPECT_EQ(exit_code(in_child(refused)), 0);
    // The refused process must not have changed anything for the first one.
    EXPECT_EQ(exit_code(in_child(refused)), 0);
    folder.append(some_record(512));
  }
  EXPECT_EQ(exit_code(in_child([&] { return int(ResultFolder(temp.path()).records().size()); })), 1);
}

// Reading takes no lock, so that a table can be shown while a sweep runs.
TEST(ResultFolder, ReadingIsPossibleWhileAnotherProcessWrites) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  folder.append(some_record(512));
  EXPECT_EQ(exit_code(in_child([&] { return int(read_records(temp.path()).size()); })), 1);
}

TEST(ResultFolder, NoAppendedRecordIsLostWhenTheWriterIsKilled) {
  using namespace std::chrono_literals;
  for (int trial = 0; trial < 10; ++trial) {
    const TempFolder temp;
    std::array<int, 2> appended{};
    ASSERT_EQ(pipe(appended.data()), 0);
    const auto child = in_child([&] {
      ResultFolder folder(temp.path());
      for (int64_t n = 1;; ++n) {
        folder.append(some_record(n));
        if (write(appended[1], &n, sizeof n) != sizeof n) return 1;
      }
    });
    close(appended[1]);
    int64_t last = 0, n = 0;
    ASSERT_EQ(read(appended[0], &last, sizeof last), ssize_t(sizeof last));
    std::this_thread::sleep_for(1ms * trial);
    kill(child, SIGKILL);
    EXPECT_EQ(exit_code(child), -SIGKILL);
    while (read(appended[0], &n, sizeof n) == sizeof n) last = n;
    close(appended[0]);

    ResultFolder folder(temp.path());  // The lock was released when its process was killed.
    const auto found = lengths(folder.records());
    ASSERT_GE(int64_t(found.size()), last);
    ASSERT_LE(int64_t(found.size()), last + 1);
    for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], int64_t(i + 1));
    folder.append(some_record(1'000'000));
    EXPECT_EQ(read_records(temp.path()).size(), found.size() + 1);
  }
}

TEST(ResultFolder, AFullDiskIsAnErrorThatNamesTheFileAndLeavesEarlierRecords) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  folder.append(some_record(512));
  const auto before = temp.read("records.jsonl");
  for (const uint64_t room : {0, 1, 700}) {
    std::string message;
    {
      const FullDisk full(before.size() + room);
      message = message_of<UsageError>([&] { folder.append(some_record(1024)); });
    }
    EXPECT_TRUE(message.starts_with(temp.path("records.jsonl") + ": cannot write: ")) << message;
    EXPECT_EQ(temp.read("records.jsonl"), before) << "with room for " << room << " bytes";
    EXPECT_EQ(lengths(folder.records()), (Lengths{512}));
  }
  folder.append(some_record(1024));  // The disk has room again.
  EXPECT_EQ(lengths(read_records(temp.path())), (Lengths{512, 1024}));
}

TEST(ResultFolder, AFullDiskLeavesTheEarlierCsvAndEnvironment) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  folder.append(some_record(512));
  folder.write_csv();
  const auto before = temp.read("records.csv");
  folder.append(some_record(1024));
  std::string message;
  {
    const FullDisk full(100);
    message = message_of<UsageError>([&] { folder.write_csv(); });
  }
  EXPECT_CONTAINS(message, temp.path("records.csv"));
  EXPECT_EQ(temp.read("records.csv"), before);
  EXPECT_FALSE(temp.has("records.csv.new"));

  {
    const FullDisk full(4);
    message = message_of<UsageError>([&] { folder.write_environment({{"sweep", "some"}}); });
  }
  EXPECT_CONTAINS(message, temp.path("environment.json"));
  EXPECT_TRUE(folder.environment().is_null());
}

// A device in place of records.jsonl must not be read, because it may never end. The child process has limited memory and time,
// so that the test ends if the device is read all the same.
TEST(ResultFolder, RecordsThatAreNotARegularFileAreRefused) {
  const TempFolder temp;
  std::filesystem::create_symlink("/dev/full", temp.path("records.jsonl"));
  const auto child = in_child([&] {
    const rlimit memory{1 << 30, 1 << 30};
    setrlimit(RLIMIT_AS, &memory);
    alarm(20);
    try {
      ResultFolder(temp.path()).append(some_record(512));
    } catch (const UsageError& error) {
      return contains(error.what(), temp.path("records.jsonl")) ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(exit_code(child), 0);
}

TEST(ResultFolder, EnvironmentIsReadBackAndMustBeAJsonObject) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  EXPECT_TRUE(folder.environment().is_null());
  folder.write_environment({{"sweep", "first"}});
  folder.write_environment({{"sweep", "second"}, {"settings", {{"deadline_s", 3}}}});
  EXPECT_EQ(folder.environment()["sweep"], "second");
  EXPECT_EQ(folder.environment()["settings"]["deadline_s"], 3);
  const std::pair<const char*, const char*> refused[] = {
      {"", "not JSON: syntax error"},
      {"[]", "not a JSON object"},
      {"{\"sweep\": ", "not JSON: syntax error"},
      {"{\"settings\": 5}", "settings is not a JSON object"},
  };
  for (const auto& [text, reason] : refused) {
    temp.write("environment.json", text);
    EXPECT_CONTAINS(message_of<UsageError>([&] { folder.environment(); }), temp.path("environment.json") + ": " + reason);
  }
}

TEST(ResultFolder, SchemaIsWrittenBesideTheRecords) {
  const TempFolder temp;
  const ResultFolder folder(temp.path());
  const Json diagnostics = {{{"name", "depth"}, {"unit", ""}, {"description", "how deep"}, {"methods", {"linear"}}}};
  folder.write_schema(diagnostics);
  EXPECT_EQ(Json::parse(temp.read("schema.json")), schema_json(diagnostics));
}

TEST(ResultFolder, ARecordWithTextThatIsNotUtf8CanBeReadAgain) {
  const TempFolder temp;
  ResultFolder folder(temp.path());
  auto record = some_record(512);
  record.set_failed(kind::crashed, "it said: \xff\xc3");
  folder.append(record);
  EXPECT_CONTAINS(read_records(temp.path())[0].text("reason"), "it said: ");
}

TEST(FileDigests, OfFilesThatBothHaveAreCompared) {
  auto of_plugin = some_record(1), external = some_record(2), of_file = some_record(3);
  of_file.set("inputs", "file:a.npy");
  of_file.set("inputs_digest", "56ef");
  of_plugin.set("method", "own");
  of_plugin.set("method_digest", "12ab");
  external.set("method", "elsewhere");
  external.set("external_source", "a table");
  const auto digests = file_digests({some_record(1), of_plugin, of_file, external});
  EXPECT_EQ(
      digests,
      (FileDigests{{"method_digest of linear", ""}, {"method_digest of own", "12ab"}, {"inputs_digest of file:a.npy", "56ef"}}));
  EXPECT_EQ(digest_differences(digests, digests), "");
  EXPECT_EQ(digest_differences(digests, {{"method_digest of other", "34cd"}}), "");
  EXPECT_EQ(
      digest_differences(
          digests, {{"method_digest of linear", "34cd"}, {"method_digest of own", ""}, {"inputs_digest of file:a.npy", "0"}}),
      "\n  inputs_digest of file:a.npy: 56ef there, 0 here\n  method_digest of linear: none there, 34cd here"
      "\n  method_digest of own: 12ab there, none here");
}

TEST(RecordsCsv, EscapesFormulasInTextAndLeavesNumbersAsTheyAre) {
  auto record = some_record(512);
  record.set("implementation", "=cmd|' /C calc'!A0");
  record.set("reason", "-1,\"quoted\"\nnext line");
  record.set("max_abs_error", -0.5);
  record.set("published_source", "@x");
  const TempFolder temp;
  ResultFolder folder(temp.path());
  folder.append(record);
  folder.write_csv();
  const auto rows = read_csv(temp.path("records.csv"));
  ASSERT_EQ(rows.size(), 2u);
  const auto cell = [&](const std::string& column) {
    const auto& header = rows[0].cells;
    const auto at = std::find(header.begin(), header.end(), column);
    return at == header.end() ? "no such column" : rows[1].cells.at(size_t(at - header.begin()));
  };
  EXPECT_EQ(cell("method"), "linear");
  EXPECT_EQ(cell("query_len"), "512");
  EXPECT_EQ(cell("causal"), "false");
  EXPECT_EQ(cell("time_median_ms"), "1.0");
  EXPECT_EQ(cell("implementation"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(cell("reason"), "'-1,\"quoted\" next line");
  EXPECT_EQ(cell("published_source"), "'@x");
  EXPECT_EQ(cell("max_abs_error"), "-0.5");
  EXPECT_EQ(cell("gpu"), "");
  EXPECT_EQ(cell("time_samples_ms"), "no such column");
  EXPECT_EQ(cell("diagnostics"), "no such column");
  EXPECT_EQ(cell("injected_slowdown_percent"), "no such column");
}

TEST(RecordsCsv, HasAColumnForEachDiagnostic) {
  auto first = some_record(512), second = some_record(1024);
  first.set("diagnostics", {{"lsh_bucket_mean", 12.5}});
  second.set("diagnostics", {{"=depth", 2}});
  const TempFolder temp;
  const auto rows = read_csv(temp.write("records.csv", records_csv({some_record(256), first, second})));
  ASSERT_EQ(rows.size(), 4u);
  const auto& header = rows[0].cells;
  const auto at = size_t(std::find(header.begin(), header.end(), "lsh_bucket_mean") - header.begin());
  ASSERT_LT(at + 1, header.size());
  EXPECT_EQ(header[at - 1], "quality_not_scored");
  EXPECT_EQ(header[at + 1], "'=depth") << "without the quote, a spreadsheet takes it for a formula";
  for (const auto& [row, cells] : {std::pair{1, std::pair{"", ""}}, {2, {"12.5", ""}}, {3, {"", "2"}}}) {
    EXPECT_EQ(rows[size_t(row)].cells[at], cells.first);
    EXPECT_EQ(rows[size_t(row)].cells[at + 1], cells.second);
  }
}

}  // namespace
}  // namespace attnbench
