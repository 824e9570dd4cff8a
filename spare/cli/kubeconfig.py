"""Where the cluster is and who we are there: from a kubeconfig, or as the service account of the pod that we run in."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

import yaml
from kubernetes_asyncio import client, config

from spare.cli.access import Access
from spare.cli.mistake import Mistake

_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT: Final = "~/.kube/config"
_MALFORMED: Final = (yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, AssertionError)
"""What the client raises over a file of another form, beside its own error: it takes the form for granted."""


async def connect(access: Access) -> tuple[client.ApiClient, str]:
    """A client, and the namespace that holds where none is named.

    Raises:
        Mistake: nothing names a cluster, or what does is wrong.
    """
    configuration = client.Configuration()
    if access.kubeconfig is None and access.context is None and not os.environ.get("KUBECONFIG") and _POD.exists():
        try:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return client.ApiClient(configuration), _POD.read_text().strip()
        except (config.ConfigException, OSError) as error:
            raise Mistake(f"the service account of this pod cannot be used: {error}") from error
    files = os.environ.get("KUBECONFIG") or _DEFAULT if access.kubeconfig is None else str(access.kubeconfig)
    if not any(map(os.path.exists, map(os.path.expanduser, filter(None, files.split(os.pathsep))))):
        raise Mistake(f"no cluster is named: there is no {files}; give --kubeconfig FILE, or set KUBECONFIG")
    try:
        loaded = await config.load_kube_config(files, access.context, configuration)
        chosen = (loaded.current_context or {}).get("context") or {}
        return client.ApiClient(configuration), chosen.get("namespace") or "default"
    except config.ConfigException as error:
        if access.context is not None and f"name {access.context} in " in str(error) and "/contexts list" in str(error):
            raise Mistake(f"{files} has no context {access.context!r}") from error
        raise Mistake(f"{files} names no cluster that can be asked: {error}") from error
    except ssl.SSLError as error:
        raise Mistake(f"a certificate in {files} cannot be used: {error.reason or error}") from error
    except _MALFORMED as error:
        raise Mistake(f"{files} is no kubeconfig: {str(error) or type(error).__name__}") from error
