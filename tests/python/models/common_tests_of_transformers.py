"""The tests that transformers has for all of its models, for those of `attnbench models`.
test_own_tests_of_transformers.py copies this file beside the sources of these tests, and runs them."""

import json
import os
import unittest
from importlib import import_module

import attnbench
import torch
from attnbench.models.configurations import CONFIGURATIONS

from tests.test_modeling_common import ModelTesterMixin, ids_tensor


def tests_of(name):
    """A class with the tests of a model, all of which run with our operators."""
    chosen = CONFIGURATIONS[name].tiny()
    module = f"transformers.models.{chosen.module}"
    config_class = getattr(import_module(f"{module}.configuration_{chosen.module}"), chosen.classes[0])
    model_class = getattr(import_module(f"{module}.modeling_{chosen.module}"), chosen.classes[1])

    class Tester:
        """What the tests ask of a model."""

        batch_size, seq_length, is_training = 3, 12, True
        hidden_size = chosen.settings["hidden_size"]
        num_attention_heads = chosen.settings["num_attention_heads"]
        num_hidden_layers = config_class(**chosen.settings).num_hidden_layers

        def get_config(self):
            return config_class(**chosen.settings)

        def prepare_config_and_inputs_for_common(self):
            inputs = {"input_ids": ids_tensor([3, 12], 120) + 2, "attention_mask": torch.ones(3, 12, dtype=torch.long)}
            return self.get_config(), inputs

    class Tests(ModelTesterMixin, unittest.TestCase):
        all_model_classes = (model_class,)
        has_attentions = False

        def setUp(self):
            self.model_tester = Tester()
            self.acceleration = attnbench.accelerate(quiet=True)

        def tearDown(self):
            self.acceleration.undo()
            report = attnbench.accelerate.report()
            with open(os.environ["ATTNBENCH_REPORT"], "a") as stream:
                stream.write(json.dumps([name, report.served, report.passed_on]) + "\n")

    Tests.__name__ = Tests.__qualname__ = f"Test_{chosen.module}"
    return Tests


globals().update({tests.__name__: tests for tests in map(tests_of, CONFIGURATIONS)})
