#include "harness/cli/import_pack.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "harness/cli/plot_scripts.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/text_file.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxManifestBytes = size_t{8} << 20;

// A folder for the files of a pack, which is removed at the end.
class UnpackedFolder {
 public:
  UnpackedFolder() {
    const char* const given = std::getenv("TMPDIR");
    auto name = (fs::path(given && *given ? given : "/tmp") / "attnbench-import-XXXXXX").string();
    if (!mkdtemp(name.data())) fail_on(name, "make the folder");
    path_ = name;
  }
  ~UnpackedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  UnpackedFolder(const UnpackedFolder&) = delete;
  UnpackedFolder& operator=(const UnpackedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Manifest {
  std::string revision, gpu;
  std::vector<std::string> sweeps, failed;  // `failed` has a line of text for each step that failed or did not run
  Json whole;
};

// Throws JsonError or Json::exception for a manifest of another form.
Manifest parse_manifest(const std::string& text) {
  Manifest manifest;
  manifest.whole = parse_json(text);
  const auto& json = manifest.whole;
  manifest.revision = json.at("revision").get<std::string>();
  manifest.gpu = json.at("gpu").get<std::string>();
  manifest.sweeps = json.at("sweeps").get<std::vector<std::string>>();
  for (const auto& step : json.at("steps"))
    if (const auto outcome = step.at("outcome").get<std::string>(); outcome != "passed")
      manifest.failed.push_back(
          fmt::format("{}: {}, {}", step.at("name").get<std::string>(), outcome, step.at("reason").get<std::string>()));
  return manifest;
}

// The records of one sweep, and the folder that they come to.
struct Sweep {
  std::string name, destination;
  Json environment;
  std::vector<Record> records, processes;
};

// Throws UsageError if the record does not come from the machine and the build of the manifest.
void check_origin(const Record& record, const Manifest& manifest, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format("{}: the record of {}{}", where, record.key(), what));
  };
  if (record.has("external_source")) refuse("was not measured by attnbench, but imported");
  if (record.text("revision") != manifest.revision)
    refuse(fmt::format("has revision '{}', but the manifest says '{}'", record.text("revision"), manifest.revision));
  if (record.text("device") == "cuda" && record.measured() && record.text("gpu") != manifest.gpu)
    refuse(fmt::format("was measured on '{}', but the manifest says '{}'", record.text("gpu"), manifest.gpu));
}

Sweep read_sweep(const fs::path& folder, const std::string& name, const std::string& pack, const Manifest& manifest) {
  const auto where = fmt::format("{}: results/{}", pack, name);
  Sweep sweep{.name = name, .destination = {}, .environment = read_environment(folder.string()), .records = {}, .processes = {}};
  if (sweep.environment.is_null())
    throw UsageError(fmt::format("{} has no environment.json, which says how its records were measured", where));
  sweep.records = read_records(folder.string());
  sweep.processes = read_processes(folder.string());
  for (const auto* lines : {&sweep.records, &sweep.processes})
    for (const auto& record : *lines) check_origin(record, manifest, where);
  if (const auto different = record_differences(sweep.environment, sweep.records); !different.empty())
    throw UsageError(fmt::format("{} has records that were not measured as its environment.json says:{}", where, different));
  return sweep;
}

}  // namespace

bool is_pack(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  char magic[2] = {};
  return file.read(magic, sizeof magic) && magic[0] == '\x1f' && magic[1] == '\x8b';
}

std::string import_pack(const std::string& path, const std::string& out, const WorkerProgram& worker) {
  const UnpackedFolder unpacked;
  run_script({.folder = "tools", .name = "gpu_pack", .arguments = {path, unpacked.path().string()}});
  Manifest manifest;
  try {
    manifest = parse_manifest(read_text_file((unpacked.path() / "manifest.json").string(), kMaxManifestBytes));
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("{}: manifest.json: {}", path, json_error_text(error)));
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: manifest.json: {}", path, error.what()));
  }
  const auto machine = folder_name(manifest.gpu);
  if (machine.empty()) throw UsageError(fmt::format("{}: manifest.json: gpu = '{}', expected a name", path, manifest.gpu));

  // Everything is checked before anything is written.
  std::vector<Sweep> sweeps;
  for (const auto& name : manifest.sweeps) {
    auto sweep = read_sweep(unpacked.path() / name, name, path, manifest);
    sweep.destination = (out.empty() ? fs::path("results") / name / machine : fs::path(out) / name).string();
    if (fs::exists(fs::path(sweep.destination) / kRecordsFile))
      throw UsageError(fmt::format("{} already holds records; import into another folder with --out", sweep.destination));
    sweeps.push_back(std::move(sweep));
  }
  const auto diagnostics = Catalogue::load(worker).diagnostics();
  auto origin = manifest.whole;
  for (const auto* listed : {"files", "sweeps"}) origin.erase(listed);
  origin["file"] = fs::path(path).filename().string();
  std::string summary;
  for (auto& sweep : sweeps) {
    ResultFolder folder(sweep.destination);
    sweep.environment["imported_from"] = origin;
    folder.write_environment(sweep.environment);
    folder.write_schema(diagnostics);
    for (const auto& process : sweep.processes) folder.append_process(process);
    for (const auto& record : sweep.records) folder.append(record);
    folder.write_csv();
    summary += fmt::format("{}: {} of {}, revision {}\n", sweep.destination, count_of(sweep.records.size(), "record"),
                           manifest.gpu, manifest.revision);
  }
  if (sweeps.empty()) summary += fmt::format("{}: no records\n", path);
  for (const auto& failure : manifest.failed) summary += fmt::format("on that machine, {}\n", failure);
  return summary;
}

}  // namespace attnbench
