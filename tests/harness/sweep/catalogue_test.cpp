// Tests of the catalogue of methods, and of the suggestions for unknown names.
#include "harness/sweep/catalogue.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_catalogue.h"

namespace attnbench {
namespace {

// The message of the error that checking this method with its options leads to.
std::string refusal_of_method(const std::string& spec) {
  const auto catalogue = test_catalogue();
  return message_of<UsageError>([&] { catalogue.check(spec); });
}

TEST(Catalogue, AcceptsKnownMethodsAndOptions) {
  const auto catalogue = test_catalogue();
  EXPECT_EQ(catalogue.names(), (std::vector<std::string>{"linear", "lsh-4", "sdpa", "softmax"}));
  for (const auto* spec : {"linear", "softmax", "linear:chunk=64", "lsh-4:buckets=8,profile=trax"})
    EXPECT_NO_THROW(catalogue.check(spec)) << spec;
}

TEST(Catalogue, UnknownMethodsAndOptionsAreRefusedAndTheNearestIsSuggested) {
  EXPECT_EQ(refusal_of_method("Linear"), "unknown method 'Linear'; did you mean 'linear'?; known: linear, lsh-4, sdpa, softmax");
  EXPECT_EQ(refusal_of_method(""), "unknown method ''; known: linear, lsh-4, sdpa, softmax");
  EXPECT_EQ(refusal_of_method("lsh-4:buckets=8,profil=trax"),
            "method 'lsh-4' has no option 'profil'; did you mean 'profile'?; known: buckets, profile");
  EXPECT_EQ(refusal_of_method("linear:"), "method 'linear:': '' is not of the form option=value");
  EXPECT_EQ(refusal_of_method("linear:chunk=3,"), "method 'linear:chunk=3,': '' is not of the form option=value");
  EXPECT_CONTAINS(refusal_of_method("linear:=3"), "method 'linear' has no option ''");
}

// If the worker or libattn.so is newer than methods.json, the file may describe another build, and the worker is asked instead.
TEST(Catalogue, AMethodsFileThatIsOutOfDateOrUnreadableIsNotUsed) {
  const TempFolder folder;
  folder.write("methods.json", R"([{"name": "stale", "options": []}])");
  folder.write("libattn.so", "");
  const WorkerProgram worker{folder.write_script("attnbench-worker", R"sh(cat >&2
echo '[{"name": "fresh", "description": "", "time_order": "", "memory_order": "", "capabilities": [], "options": []}]' >&3)sh")};
  const auto later = std::filesystem::last_write_time(folder.path("methods.json")) + std::chrono::seconds(5);
  std::filesystem::last_write_time(folder.path("attnbench-worker"), later);
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"fresh"});

  std::filesystem::last_write_time(folder.path("methods.json"), later);
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"stale"});
  std::filesystem::last_write_time(folder.path("libattn.so"), later + std::chrono::seconds(5));
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"fresh"});

  folder.write("methods.json", "not JSON");
  std::filesystem::last_write_time(folder.path("methods.json"), later + std::chrono::seconds(9));
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"fresh"});
  std::filesystem::remove(folder.path("methods.json"));
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"fresh"});
}

// An installation has libattn.so in another folder, and an installer may give files any times.
TEST(Catalogue, TheMethodsFileOfAnInstallationIsUsedWhateverItsTimeIs) {
  const TempFolder folder;
  const WorkerProgram worker{folder.write_script("attnbench-worker", "exit 1")};
  folder.write("methods.json", R"([{"name": "installed", "options": []}])");
  std::filesystem::last_write_time(folder.path("methods.json"), {});
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"installed"});
}

// The file does not have the methods of plug-ins.
TEST(Catalogue, AWorkerWithPluginsIsAskedForItsMethods) {
  const TempFolder folder;
  folder.write("methods.json", R"([{"name": "stale", "options": []}])");
  WorkerProgram worker{folder.write_script("attnbench-worker", R"sh(cat >&2
printf '[{"name": "%s", "description": "", "time_order": "", "memory_order": "", "capabilities": [], "options": []}]\n' "$2" >&3)sh")};
  worker = with_plugins(worker, {folder.write("mine.so", ""), folder.path("mine.so")});
  EXPECT_EQ(worker.plugins.size(), 1);
  EXPECT_EQ(Catalogue::load(worker).names(), std::vector<std::string>{"--plugin=" + worker.plugins.front()});

  folder.write_script("attnbench-worker", R"(cat >&2; echo '{"refused": "mine.so: bad"}' >&3)");
  EXPECT_EQ(message_of<UsageError>([&] { Catalogue::load(worker); }), "mine.so: bad");
  folder.write_script("attnbench-worker", "kill -SEGV $$");
  EXPECT_CONTAINS(message_of<WorkerError>([&] { Catalogue::load(worker); }),
                  "it was to load the plug-in " + worker.plugins.front());
}

TEST(Catalogue, ListsEachDiagnosticOnceWithItsMethods) {
  const TempFolder folder;
  const WorkerProgram worker{folder.write("attnbench-worker", "")};
  folder.write("libattn.so", "");
  folder.write("methods.json", R"([
    {"name": "a", "options": []},
    {"name": "b", "options": [], "diagnostics": [{"name": "depth", "unit": "s", "description": "how deep"}]},
    {"name": "c", "options": [], "diagnostics": [{"name": "width", "unit": "", "description": "how wide"},
                                                 {"name": "depth", "unit": "s", "description": "how deep"}]}])");
  EXPECT_EQ(Catalogue::load(worker).diagnostics(), Json::parse(R"([
    {"name": "depth", "unit": "s", "description": "how deep", "methods": ["b", "c"]},
    {"name": "width", "unit": "", "description": "how wide", "methods": ["c"]}])"));
  EXPECT_EQ(test_catalogue().diagnostics(), Json::array()) << "no method of the test catalogue declares any";
}

TEST(Catalogue, AMissingWorkerIsAnErrorThatNamesIt) {
  const TempFolder folder;
  const WorkerProgram worker{folder.path("attnbench-worker")};
  EXPECT_CONTAINS(message_of<UsageError>([&] { Catalogue::load(worker); }), "cannot start " + folder.path("attnbench-worker"));
}

TEST(Suggestion, NamesOnlyASimilarName) {
  const std::vector<std::string> known = {"softmax", "sdpa"};
  EXPECT_EQ(suggestion("softmx", known), "; did you mean 'softmax'?; known: softmax, sdpa");
  EXPECT_EQ(suggestion("sfotmax", known), "; did you mean 'softmax'?; known: softmax, sdpa");
  EXPECT_EQ(suggestion("sdp", known), "; did you mean 'sdpa'?; known: softmax, sdpa");
  EXPECT_EQ(suggestion("linear", known), "; known: softmax, sdpa");
  EXPECT_EQ(suggestion("x", {}), "; none are known");
}

}  // namespace
}  // namespace attnbench
