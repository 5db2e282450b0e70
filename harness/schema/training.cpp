// Declares the fields of trainings and the columns of their curves.
#include "harness/schema/training.h"

#include <stdexcept>

#include "harness/machine/machine.h"
#include "harness/schema/model_fields.h"

namespace attnbench {
namespace {

constexpr double kMaxModelSize = 1 << 24;
constexpr double kMaxUpdates = 1e9;
constexpr double kMaxRate = 1e30;

[[noreturn]] void refuse(const std::string& name, const Json& value, const std::string& expected) {
  throw std::invalid_argument(name + " = " + value.dump() + ", expected " + expected);
}

}  // namespace

void Training::complete() {
  if (threads == 0) threads = available_processors();
}

const std::vector<TrainingField>& training_fields() {
  static const std::vector<TrainingField> all = {
      axis("task", &Training::task,
           "what the model learns: to copy a sequence of symbols, to predict the next byte of an image or of a text, or to "
           "recognise the phones of an utterance",
           {.choices = {"copy", "images", "speech", "text"}, .section = "task"}),
      axis("method", &Training::method,
           "attention method of every layer with its options, such as linear or lsh-4:chunk=32; for speech also bi-lstm",
           {.section = "model"}),
      axis("seed", &Training::seed, "seed of the weights, the data and the dropout",
           {.max = double(int64_t{1} << 62), .section = "training"}),
      axis("device", &Training::device, "device that trains", {.choices = {"cpu", "cuda"}, .section = "training"}),
      threads_field<Training>("training"),
      setting("data", &Training::data,
              "folder of the data, from the folder of the settings file. images: the files of MNIST or CIFAR-10; speech: "
              "phones.txt, training.tsv and validation.tsv, or empty for made speech; text: training.txt and validation.txt",
              {.section = "task"}),
      setting("length", &Training::length, "copy, text: number of tokens of a sequence",
              {.min = 4, .max = kMaxModelSize, .section = "task"}),
      setting("symbols", &Training::symbols, "copy: number of symbols to copy, beside the separator",
              {.min = 1, .max = 1e6, .section = "task"}),
      setting("min_copied", &Training::min_copied, "copy: smallest number of symbols in a sequence that are copied",
              {.min = 1, .max = kMaxModelSize, .section = "task"}),
      setting("max_copied", &Training::max_copied, "copy: largest number of symbols in a sequence that are copied",
              {.min = 1, .max = kMaxModelSize, .section = "task"}),
      setting("gap", &Training::gap,
              "copy: largest number of fillers between the symbols and their copies; each sequence draws its own",
              {.max = kMaxModelSize, .section = "task"}),
      setting("training_utterances", &Training::training_utterances, "made speech: number of utterances to train with",
              {.min = 1, .max = 1e6, .section = "task"}),
      setting("validation_utterances", &Training::validation_utterances, "made speech: number of utterances to validate with",
              {.min = 1, .max = 1e6, .section = "task"}),
      setting("phones", &Training::phones, "made speech: number of phones", {.min = 2, .max = 1000, .section = "task"}),
      setting("mean_frames", &Training::mean_frames, "made speech: mean length of an utterance in frames",
              {.min = 12, .max = 1e6, .section = "task"}),
      setting("max_frames", &Training::max_frames, "made speech: largest length of an utterance in frames",
              {.min = 12, .max = 1e6, .section = "task"}),
      layers_field<Training>(),
      heads_field<Training>(),
      head_dim_field<Training>(),
      setting("hidden", &Training::hidden, "bi-lstm: number of units of a layer in each direction",
              {.min = 1, .max = 10000, .section = "model"}),
      setting("dropout", &Training::dropout, "probability of dropout after attention and in the feed-forward layers",
              {.max = 0.99, .section = "model"}),
      setting(
          "pattern", &Training::pattern,
          "copy, images, text: which of the tokens before it a token sees, for methods that take patterns, such as window:512",
          {.section = "model"}),
      setting("updates", &Training::updates, "number of updates of the weights",
              {.min = 1, .max = kMaxUpdates, .section = "training"}),
      setting("seconds", &Training::seconds,
              "wall time of updates, in seconds, after which a training ends before it has made all updates; 0: never",
              {.max = 1e9, .section = "training"}),
      setting("batch", &Training::batch, "number of sequences of an update",
              {.min = 1, .max = kMaxModelSize, .section = "training"}),
      setting("optimizer", &Training::optimizer, "optimizer: RAdam with decoupled weight decay, or Adam",
              {.choices = {"radam", "adam"}, .section = "training"}),
      setting("learning_rate", &Training::learning_rate, "learning rate of the first updates",
              {.max = kMaxRate, .section = "training"}),
      setting("schedule", &Training::schedule,
              "learning rate: constant; step: reduced_learning_rate after reduce_after updates; plateau: halved when the "
              "validation loss has stopped falling",
              {.choices = {"constant", "step", "plateau"}, .section = "training"}),
      setting("reduce_after", &Training::reduce_after,
              "step: number of updates after which the learning rate becomes reduced_learning_rate",
              {.min = 1, .max = kMaxUpdates, .section = "training"}),
      setting("reduced_learning_rate", &Training::reduced_learning_rate, "step: learning rate after reduce_after updates",
              {.max = kMaxRate, .section = "training"}),
      setting("patience", &Training::patience,
              "plateau: number of validations in a row that may be no better than the best before the learning rate is halved",
              {.max = 1e6, .section = "training"}),
      setting("min_learning_rate", &Training::min_learning_rate,
              "plateau: the training ends when its learning rate has been halved to below this; 0: never",
              {.max = kMaxRate, .section = "training"}),
      setting("weight_decay", &Training::weight_decay, "decoupled weight decay of RAdam", {.max = 1000, .section = "training"}),
      setting("max_gradient_norm", &Training::max_gradient_norm,
              "the gradient of each tensor is scaled down to this Euclidean norm; 0: never", {.section = "training"}),
      setting("validate_every", &Training::validate_every, "number of updates between two points of the curve",
              {.min = 1, .max = kMaxUpdates, .section = "training"}),
      setting("validation_batches", &Training::validation_batches, "copy, text: number of batches of a validation",
              {.min = 1, .max = 1e6, .section = "training"}),
      setting("validation_items", &Training::validation_items,
              "images: number of validation images that count, from the first on; 0: all", {.max = 1e9, .section = "training"}),
      setting("checkpoint_every", &Training::checkpoint_every, "number of updates between two checkpoints",
              {.min = 1, .max = kMaxUpdates, .section = "training"}),
      setting("epoch_items", &Training::epoch_items,
              "number of images or utterances that an epoch is taken to have for epoch and epoch_s; 0: those of the data",
              {.max = 1e9, .section = "training"}),
  };
  return all;
}

Json to_json(const Training& training) { return fields_to_json(training, training_fields()); }

Training training_of(const Json& line) {
  auto training = fields_from_json(line, training_fields());
  check(training);
  return training;
}

void check(const Training& training) {
  if (training.method.empty()) throw std::invalid_argument("a training has no method");
  if (training.task == "copy") {
    if (training.max_copied < training.min_copied)
      refuse("max_copied", training.max_copied, "at least min_copied = " + std::to_string(training.min_copied));
    // A sequence holds the symbols twice, each time followed by a separator.
    const auto needed = 2 * training.max_copied + 2 + training.gap;
    if (training.length < needed)
      refuse("length", training.length, "at least 2 · max_copied + 2 + gap = " + std::to_string(needed));
  }
  if (training.task == "images" && training.data.empty())
    refuse("data", training.data, "the folder of the images' files, for the task images");
  if (training.task == "text" && training.data.empty())
    refuse("data", training.data, "the folder of training.txt and validation.txt, for the task text");
  if (training.min_learning_rate > 0 && training.schedule != "plateau")
    refuse("min_learning_rate", training.min_learning_rate, "0 for schedules other than plateau");
  if (training.task == "speech" && double(training.max_frames) < training.mean_frames)
    refuse("max_frames", training.max_frames, "at least mean_frames = " + Json(training.mean_frames).dump());
  if (training.method == kBiLstm && training.task != "speech")
    refuse("method", training.method, "an attention method for this task");
}

std::string training_key(const Training& training) { return axes_text(training, training_fields()); }

const std::vector<Column>& training_columns() {
  static const auto all = [] {
    using enum ColumnType;
    std::vector<Column> columns = {{"schema_version", integer, "", "training", "version of this set of columns"}};
    for (const auto& field : training_fields())
      columns.push_back({std::string(field.name), type_of(field), "", field.role == FieldRole::axis ? "training" : "setting",
                         std::string(field.description)});
    const std::vector<Column> results = {
        {"outcome", text, "", "outcome", "measured (trained to its end), or failed"},
        {"failure_kind", text, "", "outcome", "why it failed: oom, not_finite, error, crashed or protocol"},
        {"reason", text, "", "outcome", "why it failed, in words"},
        {"implementation", text, "", "outcome", "implementation of the attention that ran, such as kernel/avx512"},
        {"finished_at", text, "", "outcome", "when the point was recorded, in UTC"},
        {"parameters", integer, "", "model", "number of trained parameters"},
        {"update", integer, "", "curve", "number of updates so far"},
        {"training_s", number, "s", "curve", "wall time of these updates, without validations and checkpoints"},
        {"updates_per_s", number, "1/s", "curve", "updates a second since the point before"},
        {"learning_rate_now", number, "", "curve", "learning rate of the last update"},
        {"training_loss", number, "", "curve", "mean loss of the updates since the point before"},
        {"validation_loss", number, "", "curve", "mean loss on data that is not trained on, without dropout"},
        {"validation_accuracy", number, "", "curve", "copy: share of the predictions on that data that are right"},
        {"bits_per_dim", number, "bit", "curve",
         "images, text: mean of -log2 of the probability of a byte of the validation data"},
        {"phone_error_rate", number, "", "curve",
         "speech: insertions, deletions and substitutions of phones in the validation data by the number of its phones"},
        {"chance_error_rate", number, "", "curve",
         "speech: the same rate if every utterance is answered with another transcript of similar length"},
        {"epoch", number, "", "curve", "how often each item of the training data has been used so far, on average"},
        {"epoch_s", number, "s", "curve", "time of as many updates as an epoch has, from all updates so far"},
        {"epoch_extrapolated", boolean, "", "curve", "whether epoch_s is extrapolated from less than one epoch"},
        {"peak_rss_bytes", integer, "B", "curve", "maximum of the resident memory of the process"},
    };
    columns.insert(columns.end(), results.begin(), results.end());
    return columns;
  }();
  return all;
}

}  // namespace attnbench
