// Declares the fields of a measurement of generation.
#include "harness/schema/generation.h"

#include "harness/machine/machine.h"
#include "harness/schema/model_fields.h"

namespace attnbench {

void Generation::complete() {
  if (threads == 0) threads = available_processors();
}

const std::vector<GenerationField>& generation_fields() {
  static const std::vector<GenerationField> all = {
      axis("dataset", &Generation::dataset, "data set whose images have the size that is generated, such as mnist",
           {.section = "model"}),
      axis("method", &Generation::method, "attention method of every layer with its options, such as linear or stateful-sdpa",
           {.section = "model"}),
      axis("batch", &Generation::batch, "number of images that are generated at once",
           {.min = 1, .max = 1 << 20, .section = "run"}),
      axis("device", &Generation::device, "device that generates", {.choices = {"cpu", "cuda"}, .section = "run"}),
      threads_field<Generation>("run"),
      setting("length", &Generation::length,
              "number of bytes of an image but one, which is the number of tokens that the model reads",
              {.min = 1, .max = 1 << 24, .section = "model"}),
      layers_field<Generation>(),
      heads_field<Generation>(),
      head_dim_field<Generation>(),
      setting("sampler", &Generation::sampler,
              "scale of a sample of the logistic mixture: as in the likelihood, or as in the authors' code",
              {.choices = {"as-likelihood", "as-paper"}, .section = "run"}),
      setting("processes", &Generation::processes,
              "number of processes that measure each case; the processes of different cases alternate",
              {.min = 1, .max = 1000, .section = "run"}),
      setting("whole_s", &Generation::whole_s,
              "images are generated as a whole if that is predicted to take at most so many seconds; otherwise the time is "
              "extrapolated from tokens at some positions",
              {.section = "run"}),
      setting("positions", &Generation::positions,
              "number of positions at which tokens are timed to predict or extrapolate the time of a whole image",
              {.min = 12, .max = 1000, .section = "run"}),
      setting("time_budget_s", &Generation::time_budget_s,
              "time in seconds that whole images are generated for, at least one batch", {.section = "run"}),
      setting("max_token_s", &Generation::max_token_s,
              "a case is skipped if one of the timed tokens takes longer than so many seconds", {.section = "run"}),
      setting("deadline_s", &Generation::deadline_s, "time in seconds after which a process is ended",
              {.min = 1, .section = "run"}),
  };
  return all;
}

Json to_json(const Generation& generation) { return fields_to_json(generation, generation_fields()); }

Generation generation_of(const Json& record) {
  auto generation = fields_from_json(record, generation_fields());
  check(generation);
  return generation;
}

void check(const Generation& generation) {
  if (generation.method.empty()) throw std::invalid_argument("a generation has no method");
  if (generation.dataset.empty()) throw std::invalid_argument("a generation has no dataset");
}

std::string generation_key(const Generation& generation) { return axes_text(generation, generation_fields()); }

}  // namespace attnbench
