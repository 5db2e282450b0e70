// Lets the tests in Python call the training experiments. Each line of standard input is a JSON object {"call": NAME, …} with the
// arguments of a function below; its result is written as one line of JSON to standard output, or {"error": MESSAGE} if it throws
// c10::ValueError. A tensor is {"dtype": "float64", "shape": [2, 3], "data": [numbers in row-major order]}.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "attn/problem.h"
#include "experiments/data/idx.h"
#include "experiments/data/images.h"
#include "experiments/data/made_speech.h"
#include "experiments/data/speech.h"
#include "experiments/losses/copy_loss.h"
#include "experiments/losses/logistic_mixture.h"
#include "experiments/nn/bi_lstm.h"
#include "experiments/nn/positions.h"
#include "experiments/nn/transformer.h"
#include "experiments/optim/radam.h"
#include "experiments/optim/schedule.h"
#include "harness/schema/json.h"

namespace {

using namespace experiments;
using at::Tensor;
using attnbench::Json;

at::ScalarType dtype_of(const std::string& name) {
  static const std::map<std::string, at::ScalarType> dtypes{
      {"float64", at::kDouble}, {"float32", at::kFloat}, {"int64", at::kLong}, {"uint8", at::kByte}, {"bool", at::kBool}};
  return dtypes.at(name);
}

Tensor tensor_from(const Json& json) {
  const auto shape = json.at("shape").get<std::vector<int64_t>>();
  const auto dtype = dtype_of(json.at("dtype").get<std::string>());
  const auto flat = at::isFloatingType(dtype) ? at::tensor(json.at("data").get<std::vector<double>>(), at::kDouble)
                                              : at::tensor(json.at("data").get<std::vector<int64_t>>(), at::kLong);
  return flat.to(dtype).view(shape);
}

Json json_of(const Tensor& tensor) {
  const auto flat = tensor.detach().flatten().contiguous();
  Json data;
  if (flat.is_floating_point()) {
    const auto numbers = flat.to(at::kDouble);
    data = std::vector<double>(numbers.data_ptr<double>(), numbers.data_ptr<double>() + numbers.numel());
  } else {
    const auto numbers = flat.to(at::kLong);
    data = std::vector<int64_t>(numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + numbers.numel());
  }
  const auto dtype = tensor.scalar_type();
  const char* name = dtype == at::kDouble  ? "float64"
                     : dtype == at::kFloat ? "float32"
                     : dtype == at::kBool  ? "bool"
                     : dtype == at::kByte  ? "uint8"
                                           : "int64";
  return {{"dtype", name}, {"shape", tensor.sizes().vec()}, {"data", std::move(data)}};
}

std::vector<Tensor> tensors_from(const Json& list) {
  std::vector<Tensor> tensors;
  for (const auto& item : list) tensors.push_back(tensor_from(item));
  return tensors;
}

Json json_of(const std::vector<Tensor>& tensors) {
  Json list = Json::array();
  for (const auto& tensor : tensors) list.push_back(json_of(tensor));
  return list;
}

// ---------------------------------------------------------------- models

// The weights of a model in float64, its result, and the gradients of sum(result · weights_of_loss) by the name of the parameter.
Json run_model(torch::nn::Module& model, const std::function<Tensor()>& forward, const Json& request) {
  model.to(at::kDouble);
  const auto output = forward();
  Json result{{"output", json_of(output)}, {"parameters", Json::object()}, {"gradients", Json::object()}};
  (output * tensor_from(request.at("loss_weights"))).sum().backward();
  for (const auto& item : model.named_parameters()) {
    result["parameters"][item.key()] = json_of(item.value());
    if (item.value().grad().defined()) result["gradients"][item.key()] = json_of(item.value().grad());
  }
  return result;
}

TransformerOptions transformer_options(const Json& json) {
  TransformerOptions options;
  options.method = json.at("method").get<std::string>();
  options.layers = json.at("layers").get<int64_t>();
  options.width = json.at("width").get<int64_t>();
  options.heads = json.at("heads").get<int64_t>();
  options.head_dim = json.at("head_dim").get<int64_t>();
  options.feed_forward = json.value("feed_forward", int64_t{0});
  options.dropout = 0;
  return options;
}

Json encoder(const Json& request) {
  torch::manual_seed(request.at("seed").get<uint64_t>());
  TransformerEncoder model(transformer_options(request.at("options")));
  attn::Mask mask{.causal = request.at("causal").get<bool>()};
  if (request.contains("key_lengths")) mask.key_lengths = tensor_from(request["key_lengths"]);
  const auto x = tensor_from(request.at("x"));
  return run_model(
      *model, [&] { return model(x, mask); }, request);
}

Json sequence_model(const Json& request) {
  torch::manual_seed(request.at("seed").get<uint64_t>());
  SequenceModel model(SequenceModelOptions{.tokens = request.at("tokens").get<int64_t>(),
                                           .outputs = request.at("outputs").get<int64_t>(),
                                           .encoder = transformer_options(request.at("options"))});
  const auto x = tensor_from(request.at("x"));
  return run_model(
      *model, [&] { return model(x); }, request);
}

Json speech_model_of(const Json& request) {
  torch::manual_seed(request.at("seed").get<uint64_t>());
  SpeechModel model(SpeechModelOptions{.features = request.at("features").get<int64_t>(),
                                       .phones = request.at("phones").get<int64_t>(),
                                       .encoder = transformer_options(request.at("options"))});
  const auto x = tensor_from(request.at("x")), lengths = tensor_from(request.at("frame_lengths"));
  return run_model(
      *model, [&] { return model(x, lengths); }, request);
}

Json bi_lstm(const Json& request) {
  torch::manual_seed(request.at("seed").get<uint64_t>());
  BiLstm model(BiLstmOptions{.features = request.at("features").get<int64_t>(),
                             .phones = request.at("phones").get<int64_t>(),
                             .layers = request.at("layers").get<int64_t>(),
                             .hidden = request.at("hidden").get<int64_t>()});
  const auto x = tensor_from(request.at("x")), lengths = tensor_from(request.at("frame_lengths"));
  return run_model(
      *model, [&] { return model(x, lengths); }, request);
}

Json positions(const Json& request) {
  return json_of(sinusoidal_positions(request.at("length").get<int64_t>(), request.at("width").get<int64_t>(), at::kDouble));
}

// ---------------------------------------------------------------- optimisers

// Updates the parameters with the given gradients, one list per step, where null stands for no gradient. After step number
// "replace_after" the optimiser is replaced by another one that is restored from its state, by way of "archive" or of named
// tensors. Returns the parameters after each step.
Json radam(const Json& request) {
  auto parameters = tensors_from(request.at("parameters"));
  for (auto& parameter : parameters) parameter.requires_grad_();
  const auto& given = request.at("options");
  const RAdamOptions options{.learning_rate = given.at("learning_rate").get<double>(),
                             .beta1 = given.at("beta1").get<double>(),
                             .beta2 = given.at("beta2").get<double>(),
                             .epsilon = given.at("epsilon").get<double>(),
                             .weight_decay = given.at("weight_decay").get<double>()};
  auto optimizer = std::make_unique<RAdam>(parameters, options);
  Json steps = Json::array();
  for (const auto& gradients : request.at("gradients")) {
    if (request.contains("rates")) set_learning_rate(*optimizer, request["rates"].at(steps.size()).get<double>());
    for (size_t i = 0; i < parameters.size(); ++i)
      parameters[i].mutable_grad() = gradients.at(i).is_null() ? Tensor() : tensor_from(gradients[i]);
    optimizer->step();
    steps.push_back(json_of(parameters));
    if (int64_t(steps.size()) != request.value("replace_after", int64_t{-1})) continue;
    auto restored = std::make_unique<RAdam>(parameters, options);
    if (request.value("archive", false)) {
      std::stringstream stream;
      torch::save(*optimizer, stream);
      torch::load(*restored, stream);
    } else {
      std::map<std::string, Tensor> state;
      for (const auto& [name, tensor] : optimizer->named_state()) state[name] = tensor.clone();
      restored->restore(state);
    }
    optimizer = std::move(restored);
  }
  return steps;
}

Json clip(const Json& request) {
  std::vector<Tensor> parameters;
  for (const auto& gradient : tensors_from(request.at("gradients"))) {
    parameters.push_back(at::zeros_like(gradient).requires_grad_());
    parameters.back().mutable_grad() = gradient;
  }
  const auto norms = clip_each_gradient(parameters, request.at("max_norm").get<double>());
  std::vector<Tensor> clipped;
  for (const auto& parameter : parameters) clipped.push_back(parameter.grad());
  return {{"norms", json_of(norms)}, {"gradients", json_of(clipped)}};
}

// The rate of each update of a schedule that validates nothing.
Json step_rates(const Json& request) {
  attnbench::Training training;
  training.schedule = "step";
  training.learning_rate = request.at("learning_rate").get<double>();
  training.reduce_after = request.at("reduce_after").get<int64_t>();
  training.reduced_learning_rate = request.at("reduced_learning_rate").get<double>();
  const LearningRateSchedule schedule(training);
  Json rates = Json::array();
  for (int64_t updates = 0; updates < request.at("updates").get<int64_t>(); ++updates) rates.push_back(schedule.rate(updates));
  return rates;
}

// The rate after each validation error. After each, the schedule is replaced by a new one with its state.
Json plateau_rates(const Json& request) {
  attnbench::Training training;
  training.schedule = "plateau";
  training.learning_rate = request.at("learning_rate").get<double>();
  training.patience = request.at("patience").get<int64_t>();
  LearningRateSchedule schedule(training);
  Json rates = Json::array();
  for (const auto& error : request.at("errors")) {
    schedule.validated(error.is_null() ? std::nan("") : error.get<double>());
    LearningRateSchedule restored(training);
    restored.restore(attnbench::parse_json(schedule.state().dump()));
    schedule = restored;
    rates.push_back(schedule.rate(0));
  }
  return rates;
}

// ---------------------------------------------------------------- losses

Json mixture(const Json& request) {
  const auto parameters = tensor_from(request.at("parameters")).requires_grad_();
  const auto log_likelihood = logistic_mixture_log_likelihood(parameters, tensor_from(request.at("bytes")));
  log_likelihood.sum().backward();
  return {{"log_likelihood", json_of(log_likelihood)},
          {"gradient", json_of(parameters.grad())},
          {"bits", bits_per_dimension(log_likelihood).item<double>()}};
}

// The number of times that each byte was drawn from the distribution with these parameters [3K].
Json sample_counts(const Json& request) {
  const auto parameters = tensor_from(request.at("parameters")).expand({request.at("count").get<int64_t>(), -1});
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(request.at("seed").get<uint64_t>());
  const auto sampler = parse_logistic_sampler(request.at("sampler").get<std::string>());
  return json_of(at::bincount(sample_logistic_mixture(parameters, sampler, generator), {}, 256));
}

Json copy_loss(const Json& request) {
  const auto logits = tensor_from(request.at("logits")).requires_grad_();
  const auto targets = tensor_from(request.at("targets")), mask = tensor_from(request.at("mask"));
  const auto loss = masked_cross_entropy(logits, targets, mask);
  loss.backward();
  return {{"loss", loss.item<double>()},
          {"gradient", json_of(logits.grad())},
          {"accuracy", masked_accuracy(logits, targets, mask).item<double>()}};
}

// log_probabilities [B,T,C], as the models give them.
Json ctc(const Json& request) {
  const auto log_probabilities = tensor_from(request.at("log_probabilities")).requires_grad_();
  const auto loss =
      torch::nn::functional::ctc_loss(log_probabilities.transpose(0, 1), tensor_from(request.at("labels")),
                                      tensor_from(request.at("frame_lengths")), tensor_from(request.at("label_lengths")));
  loss.backward();
  return {{"loss", loss.item<double>()}, {"gradient", json_of(log_probabilities.grad())}};
}

// ---------------------------------------------------------------- data files

Json idx(const Json& request) {
  return json_of(read_idx(request.at("path").get<std::string>(), request.at("dims").get<int64_t>()));
}

Json images(const Json& request) {
  const auto set = load_images(request.at("folder").get<std::string>());
  const auto part = [](const ImagePart& p) {
    return Json{{"pixels", json_of(p.pixels)}, {"labels", p.labels.defined() ? json_of(p.labels) : Json()}};
  };
  return {
      {"sizes", {set.height, set.width, set.channels}}, {"training", part(set.training)}, {"validation", part(set.validation)}};
}

Json json_of(const std::vector<Utterance>& utterances) {
  auto list = Json::array();
  for (int64_t i = 0; i < int64_t(utterances.size()); ++i) {
    const auto& utterance = utterances[size_t(i)];
    list.push_back({{"id", utterance.id},
                    {"frames", utterance.frames},
                    {"labels", utterance.labels},
                    {"features", json_of(speech_batch(utterances, {i}).features[0])}});
  }
  return list;
}

Json speech(const Json& request) {
  const auto set = load_speech(request.at("folder").get<std::string>());
  return {{"phones", set.phones}, {"training", json_of(set.training)}, {"validation", json_of(set.validation)}};
}

Json write_speech_folder(const Json& request) {
  MadeSpeechSettings settings;
  settings.mean_frames = request.at("mean_frames").get<double>();
  settings.max_frames = int64_t(3 * settings.mean_frames);
  write_speech(request.at("folder").get<std::string>(),
               make_speech(settings, request.at("training").get<int64_t>(), request.at("validation").get<int64_t>(),
                           request.at("seed").get<uint64_t>()));
  return nullptr;
}

const std::map<std::string, Json (*)(const Json&)> kCalls{{"encoder", encoder},
                                                          {"sequence_model", sequence_model},
                                                          {"speech_model", speech_model_of},
                                                          {"bi_lstm", bi_lstm},
                                                          {"positions", positions},
                                                          {"radam", radam},
                                                          {"clip", clip},
                                                          {"step_rates", step_rates},
                                                          {"plateau_rates", plateau_rates},
                                                          {"mixture", mixture},
                                                          {"sample_counts", sample_counts},
                                                          {"copy_loss", copy_loss},
                                                          {"ctc", ctc},
                                                          {"read_idx", idx},
                                                          {"load_images", images},
                                                          {"load_speech", speech},
                                                          {"write_made_speech", write_speech_folder}};

Json answer(const Json& request) {
  try {
    return kCalls.at(request.at("call").get<std::string>())(request);
  } catch (const c10::ValueError& error) {
    return {{"error", error.what_without_backtrace()}};
  }
}

}  // namespace

int main() {
  at::set_num_threads(1);
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(Json::parse(line)).dump() << std::endl;
}
