#include "harness/training/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "harness/records/replace_file.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr double kNoDeadlineS = 1e9;
// How long an interrupted trainer may take to write its checkpoint.
constexpr double kCheckpointGraceS = 60;
constexpr auto kPoint = "a point of a curve", kEnded = "a training";

// A line of curves.jsonl or trainings.jsonl as JSON. Throws std::invalid_argument for a line that does not say which training it
// belongs to.
ReadLine reader_into(std::vector<Json>& lines) {
  return [&lines](const Json& line) {
    if (!line.is_object()) throw std::invalid_argument(fmt::format("it is {}, expected an object", line.type_name()));
    training_of(line);
    lines.push_back(line);
  };
}

std::vector<Json> read_lines(const std::string& folder, const char* name, const char* what) {
  std::vector<Json> lines;
  read_json_lines((fs::path(folder) / name).string(), what, reader_into(lines));
  return lines;
}

// A file name that is different for each training of a folder.
std::string file_name_of(const Training& training) {
  std::string name;
  for (const char c : fmt::format("{}-{}-seed-{}", training.task, training.method, training.seed))
    name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  return fmt::format("{}-{:08x}.pt", name, uint32_t(std::hash<std::string>()(training_key(training))));
}

std::string name_of(const Training& training) {
  return fmt::format("training of {} on the task {} with seed {}", training.method, training.task, training.seed);
}

}  // namespace

WorkerProgram trainer_beside_this_program() {
  auto program = worker_beside_this_program();
  program.path = (fs::path(program.path).parent_path() / "attnbench-experiments").string();
  return program;
}

std::vector<Json> read_curves(const std::string& folder) { return read_lines(folder, kCurvesFile, kPoint); }
std::vector<Json> read_trainings(const std::string& folder) { return read_lines(folder, kTrainingsFile, kEnded); }

TrainingRun::TrainingRun(const WorkerProgram& worker, WorkerProgram trainer, TrainingFile file, const std::string& out, bool anew)
    : trainer_(std::move(trainer)),
      file_(std::move(file)),
      environment_(ask_environment(worker)),
      folder_(out.empty() ? (fs::path("results") / file_.stem() / machine_slug(environment_)).string() : out),
      lock_(folder_),
      curve_file_(folder_, kCurvesFile, kPoint, reader_into(points_)),
      ended_file_(folder_, kTrainingsFile, kEnded, reader_into(ended_)),
      anew_(anew) {
  if (!anew_) check_settings();
  const Json provenance = {{"training", file_.stem()},
                           {"description", file_.description()},
                           {"environment", environment_columns(environment_)},
                           {"settings", Json::object()}};
  const auto before = read_environment(folder_);
  if (!anew_ && !before.is_null() && !(points_.empty() && ended_.empty()))
    if (const auto different = provenance_differences(before, provenance, ComparedNames::here); !different.empty())
      throw UsageError(
          fmt::format("{} holds curves of another build or machine:{}\nchoose another folder with --out, or begin every training "
                      "again with --resume none",
                      folder_, different));
  replace_file(folder_, "environment.json", provenance.dump(2) + "\n");
  make_folder((fs::path(folder_) / "checkpoints").string());
}

void TrainingRun::check_settings() const {
  for (const auto& training : file_.trainings())
    for (const auto* lines : {&ended_, &points_})
      for (const auto& line : *lines) {
        const auto before = training_of(line);
        if (training_key(before) != training_key(training)) continue;
        std::string different;
        for (const auto& field : training_fields())
          if (const auto there = get(before, field), now = get(training, field); field.name != "updates" && there != now)
            different += fmt::format("\n  {}: {} in {}, {} now", field.name, there.dump(), folder_, now.dump());
        if (!different.empty())
          throw UsageError(fmt::format(
              "{} holds the {} with other settings:{}\nchoose another folder with --out, or begin every training again with "
              "--resume none",
              folder_, name_of(training), different));
      }
}

const Json* TrainingRun::find_ended(const Training& training) const {
  const auto found = std::find_if(ended_.begin(), ended_.end(), [&](const Json& line) {
    return training_key(training_of(line)) == training_key(training) && line.value("outcome", "") == outcome::measured &&
           line.value("update", int64_t{0}) >= training.updates;
  });
  return found == ended_.end() ? nullptr : &*found;
}

size_t TrainingRun::due() const {
  const auto& all = file_.trainings();
  return anew_ ? all.size() : size_t(std::count_if(all.begin(), all.end(), [&](const Training& t) { return !find_ended(t); }));
}

std::string TrainingRun::checkpoint_of(const Training& training) const {
  return (fs::path(folder_) / "checkpoints" / file_name_of(training)).string();
}

size_t TrainingRun::train(TrainingObserver& observer) {
  size_t failed = 0;
  TrainingObserver::Place place{0, due()};
  for (const auto& training : file_.trainings()) {
    if (!anew_ && find_ended(training)) continue;
    ++place.number;
    auto ended = run(training, place, observer);
    failed += ended.value("outcome", "") != outcome::measured;
    const auto is_same = [&](const Json& line) { return training_key(training_of(line)) == training_key(training); };
    ended_.erase(std::remove_if(ended_.begin(), ended_.end(), is_same), ended_.end());
    ended_.push_back(ended);
    std::string text;
    for (const auto& line : ended_) text += JsonLines::text_of(line);
    ended_file_.rewrite(text);
    observer.finished(place, training, ended);
  }
  return failed;
}

// Runs one training to its end, and returns its line of trainings.jsonl.
Json TrainingRun::run(const Training& training, const TrainingObserver::Place& place, TrainingObserver& observer) {
  const auto key = training_key(training);
  const auto replace_points = [&](const Json& points) {
    points_.erase(std::remove_if(points_.begin(), points_.end(),
                                 [&](const Json& point) { return training_key(training_of(point)) == key; }),
                  points_.end());
    for (const auto& point : points) points_.push_back(point);
    std::string text;
    for (const auto& point : points_) text += JsonLines::text_of(point);
    curve_file_.rewrite(text);
  };
  Json ended;
  const auto on_line = [&](const Json& line) {
    const auto kind = line.at("kind").get<std::string>();
    if (kind == "begun") {
      replace_points(line.at("points"));
      observer.starting(place, training, line.at("update").get<int64_t>());
    } else if (kind == "point") {
      const auto& point = points_.emplace_back(line.at("point"));
      curve_file_.append(point);
      observer.reached(place, training, point);
    } else if (kind == "progress") {
      observer.reached(place, training, line.at("point"));
    } else {
      ended = line.at("training");
      ended["finished_at"] = now_utc();
    }
  };
  const Json request = {{"training", to_json(training)},
                        {"data", file_.data_folder(training)},
                        {"checkpoint", checkpoint_of(training)},
                        {"resume", !anew_}};
  const auto answer = run_worker(trainer_, "train", request, kNoDeadlineS, on_line, {}, kCheckpointGraceS);
  if (!ended.is_null()) return ended;
  ended = to_json(training);
  ended["outcome"] = outcome::failed;
  ended["failure_kind"] = failure_kind(answer);
  ended["reason"] = fault_of(answer, answer.lines.size() + 1);
  ended["finished_at"] = now_utc();
  return ended;
}

}  // namespace attnbench
