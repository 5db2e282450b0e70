// Tests of learning-rate schedules. tests/python/experiments/test_experiments.py compares them with PyTorch's.
#include "experiments/optim/schedule.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::Json;
using attnbench::message_of;
using attnbench::Training;

Training with_schedule(const std::string& schedule, double learning_rate = 1) {
  Training training;
  training.schedule = schedule;
  training.learning_rate = learning_rate;
  return training;
}

TEST(LearningRateSchedule, AConstantRateNeverChanges) {
  LearningRateSchedule schedule(with_schedule("constant", 0.25));
  for (int i = 0; i < 3; ++i) schedule.validated(2);
  EXPECT_EQ(schedule.rate(0), 0.25);
  EXPECT_EQ(schedule.rate(1'000'000), 0.25);
}

TEST(LearningRateSchedule, AStepChangesTheRateAfterTheGivenUpdates) {
  auto training = with_schedule("step", 1e-3);
  training.reduce_after = 3000;
  training.reduced_learning_rate = 1e-4;
  LearningRateSchedule schedule(training);
  for (int i = 0; i < 3; ++i) schedule.validated(2);
  EXPECT_EQ(schedule.rate(0), 1e-3);
  EXPECT_EQ(schedule.rate(2999), 1e-3);
  EXPECT_EQ(schedule.rate(3000), 1e-4);
  EXPECT_EQ(schedule.rate(1'000'000), 1e-4);
}

TEST(LearningRateSchedule, APlateauHalvesTheRateWhenTheErrorStopsFalling) {
  auto training = with_schedule("plateau");
  training.patience = 1;
  LearningRateSchedule schedule(training);
  const auto rate_after = [&](double error) {
    schedule.validated(error);
    return schedule.rate(0);
  };
  EXPECT_EQ(rate_after(10), 1);
  EXPECT_EQ(rate_after(9), 1);
  EXPECT_EQ(rate_after(9), 1) << "one validation without progress is within the patience";
  EXPECT_EQ(rate_after(9.5), 0.5);
  EXPECT_EQ(rate_after(9.5), 0.5) << "counting begins again";
  EXPECT_EQ(rate_after(9.5), 0.25);
  EXPECT_EQ(rate_after(8), 0.25);
  EXPECT_EQ(rate_after(std::nan("")), 0.25);
  EXPECT_EQ(rate_after(std::nan("")), 0.125) << "NaN is no progress";
}

TEST(LearningRateSchedule, APlateauGoesOnFromARestoredState) {
  auto training = with_schedule("plateau");
  training.patience = 2;
  LearningRateSchedule schedule(training);
  EXPECT_TRUE(schedule.state()["best"].is_null());
  for (const double error : {3.0, 4.0, 5.0}) schedule.validated(error);
  LearningRateSchedule restored(training);
  restored.restore(attnbench::parse_json(schedule.state().dump()));
  EXPECT_EQ(restored.state(), schedule.state());
  restored.validated(3.5);
  EXPECT_EQ(restored.rate(0), 0.5);
}

// The texts are those of checkpoints that were written before, which have to load.
TEST(LearningRateSchedule, StatesAreThoseOfWrittenCheckpoints) {
  for (const auto& [kind, text] : {std::pair{"constant", R"({"schedule":"constant"})"},
                                   {"step", R"({"schedule":"steps"})"},
                                   {"plateau", R"({"schedule":"plateau","rate":0.5,"best":3.25,"not_better":1})"},
                                   {"plateau", R"({"schedule":"plateau","rate":1.0,"best":null,"not_better":0})"}}) {
    LearningRateSchedule schedule(with_schedule(kind));
    schedule.restore(attnbench::parse_json(text));
    EXPECT_EQ(schedule.state(), attnbench::parse_json(text));
  }
}

TEST(LearningRateSchedule, RefusesStatesOfOtherKinds) {
  LearningRateSchedule constant(with_schedule("constant")), step(with_schedule("step")), plateau(with_schedule("plateau"));
  const auto message = [](LearningRateSchedule& schedule, const Json& state) {
    return message_of<c10::ValueError>([&] { schedule.restore(state); });
  };
  EXPECT_CONTAINS(message(constant, step.state()), R"(is {"schedule":"steps"}, expected {"schedule":"constant"})");
  EXPECT_CONTAINS(message(step, plateau.state()), R"(expected {"schedule":"steps"})");
  EXPECT_CONTAINS(message(plateau, constant.state()), R"(is {"schedule":"constant"}, expected {)");
  EXPECT_CONTAINS(message(plateau, Json::array()), "is [], expected {");
  EXPECT_CONTAINS(message(constant, nullptr), "is null, expected {");
  const auto changed = [&](const char* key, const Json& value) {
    auto state = plateau.state();
    if (value == "remove") state.erase(key);
    else state[key] = value;
    return message(plateau, state);
  };
  EXPECT_CONTAINS(changed("rate", "remove"), R"("rate":"a number of at least 0")");
  EXPECT_CONTAINS(changed("best", "remove"), R"("best":"a number or null")");
  EXPECT_CONTAINS(changed("extra", 1), R"("extra":1)");
  EXPECT_CONTAINS(changed("rate", "fast"), R"("rate":"fast")");
  EXPECT_CONTAINS(changed("rate", -1), R"("rate":-1)");
  EXPECT_CONTAINS(changed("best", true), R"("best":true)");
  EXPECT_CONTAINS(changed("not_better", -1), R"("not_better":-1)");
  EXPECT_CONTAINS(changed("not_better", 0.5), R"("not_better":"a whole number of at least 0")");
  EXPECT_EQ(plateau.state(), LearningRateSchedule(with_schedule("plateau")).state()) << "refused states change nothing";
}

TEST(LearningRateSchedule, RefusesRatesThatAreNotPositive) {
  const auto message = [](const Training& training) {
    return message_of<c10::ValueError>([&] { LearningRateSchedule{training}; });
  };
  for (const auto* kind : {"constant", "step", "plateau"}) {
    EXPECT_CONTAINS(message(with_schedule(kind, 0)), "learning_rate = 0, expected a positive number");
    EXPECT_CONTAINS(message(with_schedule(kind, INFINITY)), "learning_rate = inf");
    EXPECT_CONTAINS(message(with_schedule(kind, std::nan(""))), "learning_rate = nan");
  }
  auto training = with_schedule("step");
  training.reduced_learning_rate = 0;
  EXPECT_CONTAINS(message(training), "reduced_learning_rate = 0, expected a positive number");
}

}  // namespace
}  // namespace experiments
