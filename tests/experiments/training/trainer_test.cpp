// Tests of the training loop and its checkpoints with a small copy task.
#include "experiments/training/trainer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "experiments/training/checkpoint.h"
#include "tests/experiments/data/data_files.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using attnbench::Json;
using attnbench::message_of;
using attnbench::TempFolder;
using attnbench::Training;

Training small_training(const std::string& method = "linear") {
  Training t;
  t.method = method;
  t.seed = 3;
  t.threads = 1;
  t.length = 12;
  t.symbols = 3;
  t.min_copied = 3;
  t.max_copied = 4;
  t.layers = 2;
  t.heads = 2;
  t.head_dim = 8;
  t.updates = 12;
  t.batch = 4;
  t.schedule = "step";
  t.reduce_after = 8;
  t.validate_every = 3;
  t.validation_batches = 2;
  return t;
}

void train(Trainer& trainer, int64_t until) {
  while (trainer.updates() < until) {
    trainer.update();
    if (trainer.is_point()) trainer.record_point();
  }
}

// The points without their times, which differ from run to run.
std::vector<Json> without_times(std::vector<Json> curve) {
  for (auto& point : curve)
    for (const auto* column : {"training_s", "updates_per_s", "epoch_s", "peak_rss_bytes"}) point.erase(column);
  return curve;
}

TEST(Trainer, TheSameSeedGivesTheSameCurve) {
  for (const auto* method : {"linear", "softmax", "lsh-1:chunk=4"}) {
    const auto curve = [&](int64_t seed) {
      auto training = small_training(method);
      training.seed = seed;
      Trainer trainer(training);
      train(trainer, training.updates);
      return without_times(trainer.curve());
    };
    const auto first = curve(3);
    ASSERT_EQ(first.size(), 4u);
    EXPECT_EQ(first, curve(3)) << method;
    EXPECT_NE(first.back().at("training_loss"), curve(4).back().at("training_loss")) << method;
    EXPECT_EQ(first.back().at("update"), 12);
    EXPECT_EQ(first[1].at("learning_rate_now"), 1e-3);
    EXPECT_EQ(first.back().at("learning_rate_now"), 1e-4);
    EXPECT_GT(first.back().at("parameters").get<int64_t>(), 1000);
  }
}

TEST(Trainer, ATrainingThatGoesOnFromACheckpointGivesTheSameCurve) {
  const TempFolder folder;
  for (const auto* method : {"linear", "lsh-1:chunk=4"})
    for (const auto* optimizer : {"radam", "adam"}) {
      auto training = small_training(method);
      training.optimizer = optimizer;
      Trainer whole(training);
      train(whole, 12);
      {
        Trainer first(training);
        train(first, 7);  // between two points
        first.save(folder.path("checkpoint.pt"));
      }
      Trainer second(training);
      second.load(folder.path("checkpoint.pt"));
      EXPECT_EQ(second.updates(), 7);
      train(second, 12);
      EXPECT_EQ(without_times(second.curve()), without_times(whole.curve())) << method << " " << optimizer;
    }
}

// Each task in a small size, with the path of its data.
struct SmallTask {
  Training training;
  std::string data;
};

std::vector<SmallTask> small_tasks(const TempFolder& folder) {
  auto images = small_training();
  images.task = "images";
  images.data = "images";
  fs::create_directories(folder.path("images"));
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  // The rows of an image are equal, so that there is something to learn.
  for (const auto* name : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"})
    write_idx(folder.path("images/" + std::string(name)),
              (at::randint(0, 2, {18, 1, 3}, generator, at::kByte) * 200).expand({18, 3, 3}).contiguous());
  auto speech = small_training();
  speech.task = "speech";
  speech.phones = 3;
  speech.mean_frames = 24;
  speech.max_frames = 60;
  speech.training_utterances = 18;
  speech.validation_utterances = 6;
  auto text = small_training("sparse-sdpa");
  text.task = "text";
  text.data = "text";
  text.pattern = "window:4";
  fs::create_directories(folder.path("text"));
  std::ofstream(folder.path("text/training.txt")) << std::string("ababcababcababcababcababcababcababcababc");
  std::ofstream(folder.path("text/validation.txt")) << std::string("bcababcababcababcab");
  auto kimi = images;
  kimi.method = "kda";
  auto gap = small_training();
  gap.max_copied = 3;
  gap.gap = 4;
  auto both_ways = speech;
  both_ways.method = "gated-delta";
  auto bi_lstm = speech;
  bi_lstm.method = attnbench::kBiLstm;
  bi_lstm.hidden = 8;
  bi_lstm.optimizer = "adam";
  bi_lstm.schedule = "plateau";
  return {{small_training(), ""},      {images, folder.path("images")}, {speech, ""}, {bi_lstm, ""},
          {text, folder.path("text")}, {kimi, folder.path("images")},   {gap, ""},    {both_ways, ""}};
}

TEST(Trainer, EveryTaskContinuesFromACheckpointToTheSameCurve) {
  const TempFolder folder;
  for (const auto& [training, data] : small_tasks(folder)) {
    SCOPED_TRACE(training.task + " " + training.method);
    Trainer whole(training, data);
    train(whole, 12);
    {
      Trainer first(training, data);
      train(first, 7);  // in the second epoch of images and speech, which has 4 and 5 updates
      first.save(folder.path("checkpoint.pt"));
    }
    Trainer second(training, data);
    second.load(folder.path("checkpoint.pt"));
    train(second, 12);
    EXPECT_EQ(without_times(second.curve()), without_times(whole.curve()));
    EXPECT_NE(whole.curve().front().at("validation_loss"), whole.curve().back().at("validation_loss"));
  }
}

TEST(Trainer, EveryTaskLearns) {
  const TempFolder folder;
  for (auto [training, data] : small_tasks(folder)) {
    SCOPED_TRACE(training.task + " " + training.method);
    training.updates = 60;
    training.validate_every = 20;
    training.schedule = "constant";
    training.learning_rate = 1e-2;
    training.dropout = 0;
    Trainer trainer(training, data);
    train(trainer, 60);
    const auto& first = trainer.curve().front();
    const auto& last = trainer.curve().back();
    EXPECT_LT(last.at("training_loss").get<double>(), first.at("training_loss").get<double>());
    if (training.task == "images") {
      EXPECT_NEAR(last.at("bits_per_dim").get<double>(), last.at("validation_loss").get<double>() / std::log(2.0), 1e-9);
      EXPECT_DOUBLE_EQ(last.at("epoch").get<double>(), 60 / 4.0);
      EXPECT_FALSE(last.at("epoch_extrapolated").get<bool>());
    }
    if (training.method == attnbench::kBiLstm) {
      EXPECT_EQ(last.at("implementation"), "torch/lstm");
    }
    if (training.task == "speech") {
      EXPECT_GE(last.at("phone_error_rate").get<double>(), 0);
      EXPECT_GT(last.at("chance_error_rate").get<double>(), 0.2);
    }
  }
}

TEST(Trainer, EndsWhenItsTimeIsOver) {
  auto training = small_training();
  training.updates = 1 << 30;
  training.seconds = 0.05;
  Trainer trainer(training);
  while (!trainer.is_done()) {
    EXPECT_LT(trainer.training_s(), 0.05);
    trainer.update();
    EXPECT_EQ(trainer.is_point(), trainer.updates() % 3 == 0 || trainer.is_done());
  }
  EXPECT_GE(trainer.training_s(), 0.05);
}

TEST(Trainer, EndsWhenItsLearningRateIsBelowTheMinimum) {
  auto training = small_training();
  training.updates = 1 << 20;
  training.validate_every = 1;
  training.schedule = "plateau";
  training.learning_rate = 1;  // with which nothing improves for long
  training.min_learning_rate = 0.3;
  Trainer trainer(training);
  while (!trainer.is_done()) {
    trainer.update();
    trainer.record_point();
  }
  EXPECT_LT(trainer.updates(), 1000);
  EXPECT_EQ(trainer.curve().back().at("learning_rate_now"), 0.5) << "the last update still had a rate above the minimum";
}

TEST(Trainer, ValidatesTheFirstImagesAlone) {
  const TempFolder folder;
  auto [training, data] = small_tasks(folder)[1];
  const auto loss = [&](int64_t items) {
    training.validation_items = items;
    return Trainer(training, data).validate().at("validation_loss").get<double>();
  };
  EXPECT_NE(loss(5), loss(0));
  EXPECT_EQ(loss(18), loss(0));
  EXPECT_EQ(loss(19), loss(0));
}

TEST(Trainer, ATextMustBeLongerThanItsSequences) {
  const TempFolder folder;
  auto [training, data] = small_tasks(folder)[4];
  training.length = 19;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { Trainer(training, data); }),
                  "validation.txt has 19 bytes, expected more than length = 19");
  fs::remove(data + "/training.txt");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { Trainer(training, data); }),
                  "training.txt: No such file or directory; expected a text");
}

TEST(Trainer, TheTimeOfAnEpochIsExtrapolatedFromFewerUpdates) {
  const TempFolder folder;
  const auto [training, data] = small_tasks(folder)[1];
  Trainer trainer(training, data);
  train(trainer, 3);  // of 4
  const auto& point = trainer.curve().back();
  EXPECT_TRUE(point.at("epoch_extrapolated").get<bool>());
  EXPECT_NEAR(point.at("epoch_s").get<double>(), point.at("training_s").get<double>() / 3 * 4, 1e-9);
}

TEST(Trainer, TheLossFalls) {
  auto training = small_training();
  training.updates = 300;
  training.validate_every = 100;
  training.schedule = "constant";
  training.learning_rate = 3e-3;
  training.dropout = 0;
  Trainer trainer(training);
  train(trainer, 300);
  EXPECT_LT(trainer.curve().back().at("validation_loss").get<double>(),
            0.8 * trainer.curve().front().at("validation_loss").get<double>());
}

TEST(Trainer, ValidationDoesNotChangeTheTraining) {
  // One training after the other, because all draw from PyTorch's generator, which the constructor seeds.
  const auto last_loss = [](int64_t validate_every) {
    auto training = small_training();
    training.validate_every = validate_every;
    Trainer trainer(training);
    train(trainer, 12);
    return trainer.curve().back().at("validation_loss");
  };
  EXPECT_EQ(last_loss(3), last_loss(12));
}

TEST(Trainer, ALossThatIsNotFiniteStopsTheTraining) {
  auto training = small_training();
  training.learning_rate = 1e30;
  training.max_gradient_norm = 0;
  Trainer trainer(training);
  EXPECT_NE(message_of<std::runtime_error>([&] { train(trainer, 12); }).find("the loss of update "), std::string::npos);
  EXPECT_LT(trainer.updates(), 12);
}

TEST(Trainer, RefusesACheckpointOfAnotherConfiguration) {
  const TempFolder folder;
  const auto path = folder.path("checkpoint.pt");
  const auto training = small_training();
  Trainer(training).save(path);
  auto other = training;
  other.layers = 3;
  other.batch = 5;
  const auto message = message_of<std::runtime_error>([&] { Trainer(other).load(path); });
  EXPECT_NE(message.find(path), std::string::npos) << message;
  EXPECT_NE(message.find("layers: 2 there, 3 here"), std::string::npos) << message;
  EXPECT_NE(message.find("batch: 4 there, 5 here"), std::string::npos) << message;
  auto longer = training;
  longer.updates = 20;
  EXPECT_NO_THROW(Trainer(longer).load(path));
}

TEST(Checkpoint, KeepsTensorsAndValues) {
  const TempFolder folder;
  Checkpoint saved;
  saved.values["text"] = "…";
  saved.tensors["x"] = torch::arange(6).view({2, 3});
  saved.save(folder.path("x.pt"));
  const auto loaded = Checkpoint::load(folder.path("x.pt"));
  EXPECT_EQ(loaded.values, saved.values);
  EXPECT_TRUE(torch::equal(loaded.tensors.at("x"), saved.tensors.at("x")));
  EXPECT_EQ(message_of<std::runtime_error>([&] { loaded.tensor_like("y", saved.tensors["x"]); }),
            "the checkpoint has no tensor 'y'");
  EXPECT_EQ(message_of<std::runtime_error>([&] { loaded.tensor_like("x", torch::zeros(3)); }),
            "the tensor 'x' of the checkpoint is Long [2, 3], expected Float [3]");
}

TEST(Checkpoint, ATruncatedFileIsRefusedByName) {
  const TempFolder folder;
  const auto path = folder.path("x.pt");
  Checkpoint saved;
  saved.tensors["x"] = torch::ones(1000);
  saved.save(path);
  const auto size = fs::file_size(path);
  for (const auto length : {uintmax_t{0}, uintmax_t{10}, size / 2, size - 1}) {
    fs::resize_file(path, length);
    const auto message = message_of<std::runtime_error>([&] { Checkpoint::load(path); });
    EXPECT_EQ(message.find(path + ": not a complete checkpoint: "), 0u) << length << ": " << message;
    saved.save(path);
  }
  EXPECT_NE(message_of<std::runtime_error>([&] { Checkpoint::load(folder.path("none.pt")); }).find("none.pt: cannot read"),
            std::string::npos);
}

TEST(Checkpoint, AFailedSaveLeavesTheOldFile) {
  const TempFolder folder;
  const auto path = folder.path("x.pt");
  Checkpoint saved;
  saved.tensors["x"] = torch::ones(3);
  saved.save(path);
  fs::create_directory(path + ".partial");  // the new file cannot be written here
  saved.tensors["x"] = torch::zeros(3);
  EXPECT_NE(message_of<std::runtime_error>([&] { saved.save(path); }).find("cannot write the checkpoint"), std::string::npos);
  EXPECT_TRUE(torch::equal(Checkpoint::load(path).tensors.at("x"), torch::ones(3)));
}

}  // namespace
}  // namespace experiments
