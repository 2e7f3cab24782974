"""What a client asks before anything else: how to behave towards this server."""

from __future__ import annotations

from openrl.wire.message import Message


class ClientConfig(Message):
    """How the client should behave. What is not said here has the client's own default."""

    pjwt_auth_enabled: bool = False
    credential_default_source: str = "api_key"
    parallel_fwdbwd_chunks: bool = True
    proto_compress_fwdbwd: bool = False
    fwdbwd_max_chunk_len: int = 1024
    fwdbwd_max_chunk_bytes_count: int = 5_000_000
    sample_max_concurrent_requests: int = 2000
    sample_use_retrieve_futures: bool = False
    sample_join_sampling_session: bool = True
    custom_loss_server_side: bool = False
    create_model_via_load_weights: bool = True  # versions 0.24 to 0.36; later ones always do


class DynamicConfig(Message):
    """What may change while a client runs; it asks again after `refresh_interval_sec`."""

    refresh_interval_sec: int = 300
    sample_cancel_enabled: bool = True
    sample_cancel_max_batch_size: int = 64


class SupportedModel(Message):
    model_name: str
    max_context_length: int | None = None
    trainable: bool = True
    sampleable: bool = True


class ServerCapabilities(Message):
    supported_models: list[SupportedModel]


class Health(Message):
    status: str = "ok"


class KeyOrganisation(Message):
    name: str


class KeyUser(Message):
    email: str


class KeyDetails(Message):
    org_details: KeyOrganisation
    user_details: KeyUser


class KeyInfo(Message):
    """What the bearer of a key may know of it."""

    key_id: int
    name: str
    note: str
    details: KeyDetails
