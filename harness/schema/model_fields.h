// The fields that several experiments share: each returns the declaration of a member that has the field's name.
#pragma once

#include <string_view>

#include "harness/schema/field.h"

namespace attnbench {

template <class Owner>
SettingsField<Owner> threads_field(std::string_view section) {
  return {.name = "threads",
          .role = FieldRole::axis,
          .member = &Owner::threads,
          .description = "number of CPU threads; by default one for every processor",
          .min = 1,
          .max = 4096,
          .section = section};
}

template <class Owner>
SettingsField<Owner> layers_field() {
  return {.name = "layers",
          .role = FieldRole::setting,
          .member = &Owner::layers,
          .description = "number of layers of the model",
          .min = 1,
          .max = 1000,
          .section = "model"};
}

template <class Owner>
SettingsField<Owner> heads_field() {
  return {.name = "heads",
          .role = FieldRole::setting,
          .member = &Owner::heads,
          .description = "number of attention heads of a layer",
          .min = 1,
          .max = 1000,
          .section = "model"};
}

template <class Owner>
SettingsField<Owner> head_dim_field() {
  return {.name = "head_dim",
          .role = FieldRole::setting,
          .member = &Owner::head_dim,
          .description = "dimension of a head; the model is heads · head_dim wide",
          .min = 1,
          .max = 10000,
          .section = "model"};
}

}  // namespace attnbench
