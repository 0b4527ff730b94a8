"""Hugging Face transformers: a small GPT-2 with random weights, trained in bf16, then greedy decoding."""
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import report
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8192, n_positions=512,
                                   resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens = torch.randint(8192, (8, 512), generator=torch.Generator().manual_seed(2)).cuda()
losses: list[float] = []


def step() -> None:
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(tokens, labels=tokens).loss
    losses.append(report.learn(optimizer, loss))


def decode() -> torch.Tensor:
    return model.generate(tokens[:1, :16], max_new_tokens=32, do_sample=False, pad_token_id=0,
                          attention_mask=torch.ones(1, 16, device="cuda"))


report.timed("transformers: training step", step)
report.result("transformers: losses", losses, within=0.02)
model.eval()
report.timed("transformers: 32 tokens", lambda: decode().cpu(), steps=5, warm_up=1)
