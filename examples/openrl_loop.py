"""An ordinary training loop for the tinker SDK, against a server of your own.

openrl serve                       # prints TINKER_BASE_URL and, on its first start, a TINKER_API_KEY: export both
python examples/openrl_loop.py
"""

import tinker
from tinker import types

service = tinker.ServiceClient()  # at TINKER_BASE_URL, with TINKER_API_KEY
training = service.create_lora_training_client("openrl/tiny", rank=16, seed=0).result()
tokenizer = training.get_tokenizer()
tokens = tokenizer.encode("What is the sum of two and three? It is five.")
targets = types.TensorData(data=tokens[1:], dtype="int64", shape=[len(tokens) - 1])
example = types.Datum(types.ModelInput.from_ints(tokens[:-1]), {"target_tokens": targets})
for step in range(20):
    trained = training.forward_backward([example], "cross_entropy")
    training.optim_step(types.AdamParams(learning_rate=5e-3)).result()
    print(f"step {step}: loss {trained.result().metrics['loss:sum']:.2f}")

question = types.ModelInput.from_ints(tokenizer.encode("What is the sum of two and three?"))
sampling = training.save_weights_and_get_sampling_client().result()
greedy = types.SamplingParams(max_tokens=12, temperature=0.0, stop=".")
print(tokenizer.decode(sampling.sample(question, 1, greedy).result().sequences[0].tokens))
print("saved as", training.save_state("first").result().path)
