"""An ordinary training loop for the tinker SDK, against a server of your own.

openrl serve                       # prints TINKER_BASE_URL and, on its first start, a TINKER_API_KEY: export both
python -m examples.openrl_loop
"""

from __future__ import annotations

import tinker
from tinker import types

TEXT = [9, 41, 300, 12, 77, 8, 301, 45]  # token ids; a tokenizer would give them


def main() -> None:
    service = tinker.ServiceClient()
    training = service.create_lora_training_client("openrl/tiny", rank=16).result()
    targets = types.TensorData(data=TEXT[1:], dtype="int64", shape=[len(TEXT) - 1])
    example = types.Datum(model_input=types.ModelInput.from_ints(TEXT[:-1]), loss_fn_inputs={"target_tokens": targets})
    for step in range(20):
        trained = training.forward_backward([example], "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=5e-3)).result()
        print(f"step {step}: loss {trained.result().metrics['loss:sum']:.3f}")
    sampling = training.save_weights_and_get_sampling_client().result()
    params = types.SamplingParams(max_tokens=4, temperature=0.0, seed=1, stop=[])
    answer = sampling.sample(types.ModelInput.from_ints(TEXT[:4]), num_samples=1, sampling_params=params).result()
    print(f"after {TEXT[:4]} it says {answer.sequences[0].tokens}")
    print(f"saved as {training.save_state('first').result().path}")
    service.close("success")


if __name__ == "__main__":
    main()
