"""Where this machine is, and where a bucket is: reading across regions costs money and time.

A cloud's metadata service says the first: Google Cloud `instance/zone`, AWS `placement/region`. MARIN_REGION says it
where neither answers, or other than they do. The bucket's own description says the second.
"""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

from marin.storage import Store, split_url

ANSWER_SECONDS = 1.0


def region_here(environment: Mapping[str, str] = os.environ) -> str:
    """The region of this machine, such as europe-west4; empty where nobody knows."""
    if environment.get("MARIN_REGION"):
        return environment["MARIN_REGION"]
    google = environment.get("GCE_METADATA_HOST", "metadata.google.internal")
    amazon = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    with contextlib.suppress(OSError):
        url = f"http://{google}/computeMetadata/v1/instance/zone"
        zone = _ask(url, {"Metadata-Flavor": "Google"}).strip().rpartition("/")[2]
        return zone.rpartition("-")[0]
    with contextlib.suppress(OSError):
        token = _ask(f"{amazon}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
        return _ask(f"{amazon}/latest/meta-data/placement/region", {"X-aws-ec2-metadata-token": token}).strip()
    return ""


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        return str(answer.read().decode())


def region_of(store: Store) -> str:
    """The region of a store's bucket, in lower case; empty for what has none, or does not tell."""
    scheme, rest = split_url(store.url)
    bucket = rest.strip("/").partition("/")[0]
    try:
        if scheme in ("gs", "gcs"):
            return str(_filesystem(scheme).call("GET", "b/{}", bucket, json_out=True)["location"]).lower()
        if scheme in ("s3", "s3a"):
            place = _filesystem(scheme).call_s3("get_bucket_location", Bucket=bucket)["LocationConstraint"]
            return str(place or "us-east-1").lower()
    except Exception:  # credentials that may use a bucket need not be allowed to describe it
        return ""
    return ""


def _filesystem(scheme: str) -> Any:
    import fsspec

    return fsspec.filesystem(scheme, use_listings_cache=False)


def across_regions(here: str, there: str) -> bool:
    """Whether a machine and a bucket are known to lie in different regions. A multi-region holds those of its part."""
    if not here or not there or here.lower() == there:
        return False
    parts = {"us": ("us-", "northamerica-"), "eu": ("europe-", "eu-"), "asia": ("asia-", "ap-")}
    return not here.lower().startswith(parts.get(there, (there + "-",)))
