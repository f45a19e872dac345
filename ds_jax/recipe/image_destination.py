"""Which network addresses images may be fetched from unless a caller decides otherwise.

Decides whether an address is one of the public internet. Never resolves a name. In: an address as
text. Out: yes or no.

Source: the special-purpose address registries of IANA. The networks are listed here, so the answer
does not depend on the Python version.
"""

from __future__ import annotations

import ipaddress

_CLOSED_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # between a provider and its customers
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # the services of a cloud provider for its machines
            "169.254.0.0/16",  # link-local, with the metadata services of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays to 6to4
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # measurements
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
"""Global unicast. Outside of it: loopback, private, multicast, and IPv4 in IPv6 (mapped, NAT64)."""
_CLOSED_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: holds an IPv4 address
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: str) -> bool:
    """Whether an address is an ordinary one of the public internet.

    Args:
      address: IPv4 or IPv6, as `"93.184.216.34"`; an IPv6 zone counts as not public.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _CLOSED_V4)
    is_open = parsed in _OPEN_V6 and parsed.scope_id is None
    return is_open and not any(parsed in network for network in _CLOSED_V6)
