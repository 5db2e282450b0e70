// Runs the trainer for each training that is due, from its checkpoint where there is one, and takes its answers.
#include "harness/experiments/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "attn/method_name.h"
#include "harness/records/folder_lock.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr double kNoDeadlineS = 1e9;
// How long an interrupted trainer may take to write its checkpoint.
constexpr double kCheckpointGraceS = 60;
constexpr auto kPoint = "a point of a curve", kEnded = "a training";

void check_training(const Json& line) { training_of(line); }

// A text as part of a file name.
std::string in_file_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' ? c : '_';
  return name;
}

std::string name_of(const Training& training) {
  return fmt::format("training of {} on the task {} with seed {}", training.method, training.task, training.seed);
}

}  // namespace

std::vector<Json> read_trainings(const std::string& folder) {
  std::vector<Json> lines;
  read_json_lines((fs::path(folder) / kTrainingsFile).string(), kEnded, lines_into(lines, check_training));
  return lines;
}

std::string title_of(const Training& training) {
  return fmt::format("{} {} seed {}", training.task, training.method, training.seed);
}

std::string checkpoint_of(const std::string& folder, const Training& training) {
  const auto name = in_file_name(fmt::format("{}-{}-seed-{}", training.task, training.method, training.seed));
  const auto hash = uint32_t(std::hash<std::string>()(training_key(training)));
  return (fs::path(folder) / kCheckpointsFolder / fmt::format("{}-{:08x}.pt", name, hash)).string();
}

std::string method_in_file_names(const std::string& method, const std::vector<Json>& trainings) {
  const std::string name(attn::method_name(method));
  for (const auto& line : trainings)
    if (const auto other = line.at("method").get<std::string>(); other != method && attn::method_name(other) == name)
      return in_file_name(method);
  return in_file_name(name);
}

TrainingRun::TrainingRun(const WorkerProgram& worker, WorkerProgram trainer, TrainingFile file, const std::string& out, bool anew)
    : trainer_(std::move(trainer)),
      file_(std::move(file)),
      folder_(worker, file_.stem(), out),
      curve_file_(folder(), kCurvesFile, kPoint, lines_into(points_, check_training)),
      ended_file_(folder(), kTrainingsFile, kEnded, lines_into(ended_, check_training)),
      anew_(anew) {
  if (!anew_) check_settings();
  folder_.write_environment(file_.description(), !anew_ && !(points_.empty() && ended_.empty()),
                            "choose another folder with --out, or begin every training again with --resume none");
  make_folder(folder_.path_of(kCheckpointsFolder));
}

void TrainingRun::check_settings() const {
  for (const auto& training : file_.items())
    for (const auto* lines : {&ended_, &points_})
      for (const auto& line : *lines) {
        const auto before = training_of(line);
        if (training_key(before) != training_key(training)) continue;
        std::string different;
        for (const auto& field : training_fields())
          if (const auto there = get(before, field), now = get(training, field); field.name != "updates" && there != now)
            different += fmt::format("\n  {}: {} in {}, {} now", field.name, there.dump(), folder(), now.dump());
        if (!different.empty())
          throw StaleFolderError(fmt::format(
              "{} holds the {} with other settings:{}\nchoose another folder with --out, or begin every training again with "
              "--resume none",
              folder(), name_of(training), different));
      }
}

const Json* TrainingRun::find_ended(const Training& training) const {
  const auto found = std::find_if(ended_.begin(), ended_.end(), [&](const Json& line) {
    if (line.value("outcome", "") != outcome::measured) return false;
    const auto ended = training_of(line);
    // A training may end before it has made all updates, when its time is over.
    return training_key(ended) == training_key(training) &&
           (line.value("update", int64_t{0}) >= training.updates || ended.updates >= training.updates);
  });
  return found == ended_.end() ? nullptr : &*found;
}

size_t TrainingRun::due() const {
  const auto& all = file_.items();
  return anew_ ? all.size() : size_t(std::count_if(all.begin(), all.end(), [&](const Training& t) { return !find_ended(t); }));
}

void TrainingRun::check_data(const Training& training) const {
  const auto path = file_.path_of("data", training.data);
  if (path.empty() || fs::is_directory(path)) return;
  throw UsageError(fmt::format(
      "{}: there is no such folder, where {} expects its data; `python experiments/prepare_data.py --help` says which data it "
      "writes, and --set data=FOLDER names another folder",
      path, file_.stem()));
}

size_t TrainingRun::train(TrainingObserver& observer) {
  for (const auto& training : file_.items())
    if (anew_ || !find_ended(training)) check_data(training);
  size_t failed = 0;
  TrainingObserver::Place place{0, due()};
  for (const auto& training : file_.items()) {
    if (!anew_ && find_ended(training)) continue;
    ++place.number;
    auto ended = run(training, place, observer);
    failed += ended.value("outcome", "") != outcome::measured;
    const auto is_same = [&](const Json& line) { return training_key(training_of(line)) == training_key(training); };
    ended_.erase(std::remove_if(ended_.begin(), ended_.end(), is_same), ended_.end());
    ended_.push_back(ended);
    ended_file_.rewrite(ended_);
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
    curve_file_.rewrite(points_);
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
    } else if (kind == "error") {
      ended = to_json(training);
      ended["outcome"] = outcome::failed;
      ended["failure_kind"] = line.at("failure_kind");
      ended["reason"] = line.at("message");
    } else {
      ended = line.at("training");
    }
  };
  const Json request = {{"training", to_json(training)},
                        {"data", file_.path_of("data", training.data)},
                        {"checkpoint", checkpoint_of(folder(), training)},
                        {"resume", !anew_}};
  const auto answer = run_worker(trainer_, "train", request, kNoDeadlineS, on_line, {}, kCheckpointGraceS);
  if (ended.is_null()) {
    ended = to_json(training);
    ended["outcome"] = outcome::failed;
    ended["failure_kind"] = failure_kind(answer);
    ended["reason"] = fault_of(answer, answer.lines.size() + 1);
  }
  ended["finished_at"] = now_utc();
  return ended;
}

}  // namespace attnbench
