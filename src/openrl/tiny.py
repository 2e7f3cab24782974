"""The built-in model `openrl/tiny`: a small Qwen3 with random weights and a tokenizer, made here, without a download.

The same code and libraries make the same files. It knows nothing, but learns: for tests, demonstrations and recipes.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from openrl.folders import publish

NAME = "openrl/tiny"
VOCABULARY = 768
CONTEXT = 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
THINKING = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# Words and lines as they occur in conversations, arithmetic and queries: enough for merges that shorten such text.
_TEXT = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what
all were we when your can said there use an each which she do how their if will up other about out many then them these
so some her would make like him into time has look two more write go see number no way could people my than first water
been call who oil its now find long down day did get come made may part over new sound take only little work know place
year live me back give most very after thing our just name good sentence man think say great where help through much
before line right too mean old any same tell boy follow came want show also around form three small set put end does
another well large must big even such because turn here why ask went men read need land different home us move try kind
hand picture again change off play spell air away animal house point page letter mother answer found study still learn
should world high every near add food between own below country plant last school father keep tree never start city
user assistant system message question answer function value table column select from where count order group result
hello thanks please sorry today people problem example number sum plus minus times equals total amount average price
User: What is the sum of these numbers? Assistant: The answer is that number. I don't know, but I can help you with it.
What is the capital of the country? How do I write a function? SELECT name, count(*) FROM table WHERE value > ORDER BY
"""
_CHAT = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def made_in(folder: Path) -> Path:
    """The folder that holds the model, made now if it is not there."""
    if not folder.exists():
        publish(folder, _write)
    return folder


def _write(folder: Path) -> None:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer().save_pretrained(folder)
    model().save_pretrained(folder)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level pairs, so that every text round-trips; digits stand alone."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(THINKING),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([_TEXT], trainer)
    core.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    core.add_tokens([AddedToken(token, normalized=False) for token in THINKING])
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, eos_token=TURN_END, pad_token=END_OF_TEXT, model_max_length=CONTEXT
    )
    wrapped.chat_template = _CHAT
    return wrapped


def model() -> Qwen3ForCausalLM:
    """Four layers of width 128, drawn from a generator of its own."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
    )
    config.eos_token_id = tokenizer().convert_tokens_to_ids([TURN_END, END_OF_TEXT])
    made = Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in sorted(made.named_parameters()):
            if parameter.ndim > 1:
                parameter.normal_(0.0, config.initializer_range, generator=generator)
            else:
                parameter.fill_(1.0)
    made.generation_config.eos_token_id = config.eos_token_id
    return made
