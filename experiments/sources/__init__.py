"""Where the data of the experiments come from; experiments/prepare_data.py uses these modules."""
