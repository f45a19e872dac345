"""Without a filter only ordinary addresses of the public internet may be fetched from."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_jax.recipe import image_destination


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
        *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
        *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9"),
        *("224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"),
        *("64:ff9b::8.8.8.8", "64:ff9b:1::a00:1", "100::1", "2001::1", "2001:db8::1", "3fff::1"),
        *("2002:7f00:1::", "2002:808:808::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1"),
        *("ff02::1", "5f00::1", "fe80::1%lo", "2606:4700::1%eth0", "", "localhost", "1.2.3"),
    ],
)
def test_other_addresses_are_closed(address):
    assert not image_destination.is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "169.253.1.1"),
        *("172.15.0.1", "172.32.0.1", "192.0.1.1", "198.17.1.1", "198.20.0.1", "223.255.255.255"),
        *("2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "2620:fe::fe"),
    ],
)
def test_public_addresses_are_open(address):
    assert image_destination.is_public(address)


@given(st.ip_addresses())
def test_what_python_calls_private_is_closed(address):
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert not image_destination.is_public(str(address))


@given(st.ip_addresses(v=4))
def test_no_form_of_ipv4_in_ipv6_is_open(address):
    number = int(address)
    for form in (
        number,
        0xFFFF << 32 | number,
        (0x64FF9B << 96) | number,
        0x2002 << 112 | number << 80,
    ):
        assert not image_destination.is_public(str(ipaddress.IPv6Address(form)))
