// What experiments_probe offers of experiments/data: reading files that the tests in Python have written, and writing files that
// they read.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

#include "experiments/data/idx.h"
#include "experiments/data/images.h"
#include "experiments/data/made_speech.h"
#include "experiments/data/speech.h"
#include "harness/schema/json.h"

namespace experiments {

inline attnbench::Json json_of_bytes(const at::Tensor& values) {
  if (!values.defined()) return nullptr;
  const auto flat = values.contiguous().flatten();
  const auto* const data = flat.const_data_ptr<uint8_t>();
  return {{"sizes", values.sizes().vec()}, {"values", std::vector<int>(data, data + flat.numel())}};
}

inline attnbench::Json json_of_utterances(const std::vector<Utterance>& utterances) {
  auto list = attnbench::Json::array();
  for (int64_t i = 0; i < int64_t(utterances.size()); ++i) {
    const auto& utterance = utterances[size_t(i)];
    const auto features = speech_batch(utterances, {i}).features.flatten();
    const auto* const data = features.const_data_ptr<float>();
    list.push_back({{"id", utterance.id},
                    {"frames", utterance.frames},
                    {"labels", utterance.labels},
                    {"features", std::vector<float>(data, data + features.numel())}});
  }
  return list;
}

// The result of a request [function, arguments…]; nothing if there is no function of this name here.
inline std::optional<attnbench::Json> call_data(const attnbench::Json& request) {
  using attnbench::Json;
  const auto name = request.at(0).get<std::string>();
  const auto text = [&](size_t i) { return request.at(i).get<std::string>(); };
  if (name == "read_idx") return json_of_bytes(read_idx(text(1), request.at(2).get<int64_t>()));
  if (name == "write_idx") {  // path, sizes, values, whether to compress
    const auto values = at::tensor(request.at(3).get<std::vector<int64_t>>()).to(at::kByte);
    write_idx(text(1), values.view(request.at(2).get<std::vector<int64_t>>()),
              request.at(4).get<bool>() ? Compression::gzip : Compression::none);
    return Json();
  }
  if (name == "load_images") {
    const auto set = load_images(text(1));
    const auto part = [](const ImagePart& p) {
      return Json{{"pixels", json_of_bytes(p.pixels)}, {"labels", json_of_bytes(p.labels)}};
    };
    return Json{{"height", set.height},
                {"width", set.width},
                {"channels", set.channels},
                {"training", part(set.training)},
                {"validation", part(set.validation)}};
  }
  if (name == "load_speech") {
    const auto set = load_speech(text(1));
    return Json{{"phones", set.phones},
                {"training", json_of_utterances(set.training)},
                {"validation", json_of_utterances(set.validation)}};
  }
  if (name == "write_made_speech") {  // folder, mean frames, number of utterances to train with, to validate with, seed
    MadeSpeechSettings settings;
    settings.mean_frames = request.at(2).get<double>();
    settings.max_frames = int64_t(3 * settings.mean_frames);
    write_speech(text(1), make_speech(settings, request.at(3).get<int64_t>(), request.at(4).get<int64_t>(),
                                      request.at(5).get<uint64_t>()));
    return Json();
  }
  return std::nullopt;
}

}  // namespace experiments
