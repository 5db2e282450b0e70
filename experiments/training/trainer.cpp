// The loop of updates, validations and checkpoints, and the conditions that end it.
#include "experiments/training/trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/serialize/archive.h>

#include <chrono>
#include <cmath>
#include <sstream>
#include <utility>

#include "experiments/nn/transformer.h"
#include "experiments/optim/radam.h"
#include "experiments/training/checkpoint.h"
#include "experiments/training/models.h"
#include "harness/worker/cpu/memory.h"

namespace experiments {
namespace {

using attnbench::Json;

// The seeds of the generators follow from that of the training; their distance keeps those of neighbouring trainings apart.
constexpr uint64_t kDataSeed = 0x9E3779B97F4A7C15u;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

at::Generator weights_generator() { return at::globalContext().defaultGenerator(at::kCPU); }

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const attnbench::Training& t, std::vector<at::Tensor> parameters) {
  if (t.optimizer == "radam") {
    const RAdamOptions options{.learning_rate = t.learning_rate, .weight_decay = t.weight_decay};
    return std::make_unique<RAdam>(std::move(parameters), options);
  }
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(t.learning_rate));
}

// The state of the optimizer as bytes, uint8 [n].
at::Tensor bytes_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const auto text = stream.str();
  return torch::from_blob(const_cast<char*>(text.data()), {int64_t(text.size())}, at::kByte).clone();
}

void restore_optimizer(torch::optim::Optimizer& optimizer, const at::Tensor& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(static_cast<const char*>(bytes.const_data_ptr()), size_t(bytes.numel()));
  optimizer.load(archive);
}

}  // namespace

SavedTraining load_training(const std::string& path) {
  SavedTraining saved;
  saved.checkpoint = Checkpoint::load(path);
  try {
    const auto& values = saved.checkpoint.values;
    saved.training = attnbench::training_of(values.at("training"));
    saved.data = values.at("data").get<std::string>();
    saved.updates = values.at("updates").get<int64_t>();
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
  return saved;
}

void restore_weights(torch::nn::Module& model, const Checkpoint& checkpoint) {
  const at::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters())
    item.value().copy_(checkpoint.tensor_like("model." + item.key(), item.value()));
  for (const auto& item : model.named_buffers()) item.value().copy_(checkpoint.tensor_like("model." + item.key(), item.value()));
}

Trainer::Trainer(const attnbench::Training& training, const std::string& data)
    : training_(training), data_(data), schedule_(training) {
  at::set_num_threads(int(training.threads));
  weights_generator().set_current_seed(uint64_t(training.seed));
  data_generator_ = at::make_generator<at::CPUGeneratorImpl>(uint64_t(training.seed) ^ kDataSeed);
  task_ = make_task(training, data);
  optimizer_ = make_optimizer(training, task_->model().parameters());
}

bool Trainer::is_done() const {
  return updates_ >= training_.updates || (training_.seconds > 0 && training_s_ >= training_.seconds) ||
         schedule_.rate(updates_) < training_.min_learning_rate;
}

double Trainer::updates_per_s() const { return interval_s_ > 0 ? double(interval_updates_) / interval_s_ : 0; }

void Trainer::update() {
  const auto begin = std::chrono::steady_clock::now();
  task_->model().train();
  optimizer_->zero_grad();
  task_->set_method_seed(method_seed(training_, updates_ + 1));
  const auto loss = task_->loss(updates_ + 1, data_generator_);
  last_loss_ = loss.item<double>();
  if (!std::isfinite(last_loss_))
    throw NotFinite("the loss of update " + std::to_string(updates_ + 1) + " is " +
                    (std::isnan(last_loss_) ? "NaN" : "infinite"));
  loss.backward();
  if (training_.max_gradient_norm > 0) clip_each_gradient(task_->model().parameters(), training_.max_gradient_norm);
  last_learning_rate_ = schedule_.rate(updates_);
  set_learning_rate(*optimizer_, last_learning_rate_);
  optimizer_->step();
  ++updates_;
  const auto s = seconds_since(begin);
  training_s_ += s;
  interval_s_ += s;
  interval_loss_ += last_loss_;
  ++interval_updates_;
}

Json Trainer::validate() {
  const at::NoGradGuard no_grad;
  task_->model().eval();
  return task_->validate();
}

const Json& Trainer::record_point() {
  auto point = attnbench::to_json(training_);
  const auto found = validate();
  schedule_.validated(found.at("validation_loss").get<double>());
  point.update(found);
  point["schema_version"] = attnbench::kSchemaVersion;
  point["parameters"] = parameter_count(task_->model());
  point["implementation"] = task_->implementation();
  point["update"] = updates_;
  point["training_s"] = training_s_;
  point["updates_per_s"] = updates_per_s();
  const auto items = training_.epoch_items;
  const auto size = items > 0 ? (items + training_.batch - 1) / training_.batch : task_->updates_per_epoch();
  if (size > 0 && updates_ > 0) {
    point["epoch"] = double(updates_) / double(size);
    point["epoch_s"] = training_s_ / double(updates_) * double(size);
    point["epoch_extrapolated"] = updates_ < size;
  }
  point["learning_rate_now"] = last_learning_rate_;
  point["training_loss"] = interval_loss_ / double(std::max<int64_t>(1, interval_updates_));
  point["peak_rss_bytes"] = attnbench::peak_resident_bytes();
  interval_s_ = interval_loss_ = 0;
  interval_updates_ = 0;
  return curve_.emplace_back(std::move(point));
}

std::unique_ptr<Trainer> Trainer::from_checkpoint(const std::string& path, const std::string& data) {
  const auto saved = load_training(path);
  auto trainer = std::make_unique<Trainer>(saved.training, data.empty() ? saved.data : data);
  trainer->restore(saved.checkpoint, path);
  return trainer;
}

Json Trainer::summary() const { return curve_.empty() ? attnbench::to_json(training_) : curve_.back(); }

void Trainer::save(const std::string& path) const {
  Checkpoint checkpoint;
  checkpoint.values = {{"training", attnbench::to_json(training_)},
                       {"data", data_},
                       {"updates", updates_},
                       {"training_s", training_s_},
                       {"last_loss", last_loss_},
                       {"last_learning_rate", last_learning_rate_},
                       {"interval_s", interval_s_},
                       {"interval_loss", interval_loss_},
                       {"interval_updates", interval_updates_},
                       {"schedule", schedule_.state()},
                       {"curve", curve_}};
  for (const auto& item : task_->model().named_parameters()) checkpoint.tensors["model." + item.key()] = item.value();
  for (const auto& item : task_->model().named_buffers()) checkpoint.tensors["model." + item.key()] = item.value();
  checkpoint.tensors["optimizer"] = bytes_of(*optimizer_);
  checkpoint.tensors["generator.weights"] = weights_generator().get_state();
  checkpoint.tensors["generator.data"] = data_generator_.get_state();
  checkpoint.save(path);
}

void Trainer::load(const std::string& path) { restore(Checkpoint::load(path), path); }

void Trainer::restore(const Checkpoint& checkpoint, const std::string& path) {
  try {
    const auto& values = checkpoint.values;
    std::string different;
    const auto here = attnbench::to_json(training_);
    const auto& there = values.at("training");
    for (const auto& field : attnbench::training_fields()) {
      const std::string name(field.name);
      if (name != "updates" && there.value(name, Json()) != here.at(name))
        different += "\n  " + name + ": " + there.value(name, Json()).dump() + " there, " + here.at(name).dump() + " here";
    }
    if (!different.empty()) throw std::runtime_error("the checkpoint is of another configuration:" + different);

    restore_weights(task_->model(), checkpoint);
    restore_optimizer(*optimizer_, checkpoint.tensors.at("optimizer"));
    schedule_.restore(values.at("schedule"));
    auto weights = weights_generator();
    weights.set_state(checkpoint.tensor_like("generator.weights", weights.get_state()));
    data_generator_.set_state(checkpoint.tensor_like("generator.data", data_generator_.get_state()));
    updates_ = values.at("updates").get<int64_t>();
    training_s_ = values.at("training_s").get<double>();
    last_loss_ = values.at("last_loss").get<double>();
    last_learning_rate_ = values.at("last_learning_rate").get<double>();
    interval_s_ = values.at("interval_s").get<double>();
    interval_loss_ = values.at("interval_loss").get<double>();
    interval_updates_ = values.at("interval_updates").get<int64_t>();
    curve_ = values.at("curve").get<std::vector<Json>>();
    task_->set_method_seed(method_seed(training_, updates_));
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace experiments
