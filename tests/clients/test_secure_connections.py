"""Publisher and subscriber with TLS, passwords and client certificates, with a real Mosquitto."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from firedex.wire import LogUtility
from firedex_clients import ConnectionRefused, MqttSecurity, Publisher, Subscriber
from firedex_clients.commands import pub
from tests.support.free_ports import free_port
from tests.support.secure_parts import SiteCertificates, make_certificates, secure_mosquitto

PASSWORDS = {"sensor": "smoke-signal", "crew": "ladder-42"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> SiteCertificates:
    folder = tmp_path_factory.mktemp("certificates") / "certs"
    return make_certificates(folder, clients=("sensor", "crew"))


@pytest.fixture(scope="module")
def broker(
    certificates: SiteCertificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    with secure_mosquitto(tmp_path_factory.mktemp("broker"), certificates, PASSWORDS) as port:
        yield port


def security(certificates: SiteCertificates, user: str) -> MqttSecurity:
    return MqttSecurity(ca_file=certificates.ca, user=user, password=PASSWORDS[user])


def publish(broker: int, settings: MqttSecurity | None) -> None:
    with Publisher("127.0.0.1", broker, id="sensor", security=settings) as publisher:
        publisher.publish("smoke/1", b"21 C", qos=1)


def subscriber(broker: int, settings: MqttSecurity | None) -> Subscriber:
    return Subscriber(
        f"http://127.0.0.1:{free_port()}",  # no service listens here
        id="crew",
        switch="core",
        address="127.0.0.1",
        broker=f"127.0.0.1:{broker}",
        security=settings,
    )


def test_events_pass_over_tls_with_passwords(broker: int, certificates: SiteCertificates) -> None:
    crew = subscriber(broker, security(certificates, "crew"))
    stream = crew.subscribe("smoke/#", utility=LogUtility(weight=1.0))
    large = b"x" * 300_000  # more than one TLS record
    with crew, Publisher("127.0.0.1", broker, id="sensor",
                         security=security(certificates, "sensor")) as publisher:  # fmt: skip
        publisher.publish("smoke/1", b"21 C")
        publisher.publish("smoke/2", large, qos=1)
        events = [stream.take(20.0), stream.take(20.0)]
    assert [each and each.payload for each in events] == [b"21 C", large]


@pytest.mark.parametrize(
    "change",
    [{"password": "wrong"}, {"user": "nobody"}, {"user": None, "password": None}],
    ids=["password", "user", "anonymous"],
)
def test_wrong_credentials_are_refused(
    broker: int, certificates: SiteCertificates, change: dict[str, str | None]
) -> None:
    wrong = replace(security(certificates, "sensor"), **change)  # type: ignore[arg-type]
    with pytest.raises(ConnectionRefused, match=r"Not authorized|Bad user name"):
        publish(broker, wrong)


def test_subscriber_with_a_wrong_password_is_refused(
    broker: int, certificates: SiteCertificates
) -> None:
    crew = subscriber(broker, replace(security(certificates, "crew"), password="wrong"))  # noqa: S106
    crew.subscribe("smoke/#", utility=LogUtility(weight=1.0))
    with pytest.raises(ConnectionRefused, match=r"Not authorized|Bad user name"), crew:
        pass


def test_server_of_another_authority_is_not_trusted(broker: int, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other", parts=("broker",))
    settings = MqttSecurity(ca_file=other.ca, user="sensor", password=PASSWORDS["sensor"])
    with pytest.raises(ConnectionRefused, match="authority that is not trusted"):
        publish(broker, settings)


def test_server_with_a_certificate_for_another_address_is_not_trusted(
    broker: int, certificates: SiteCertificates
) -> None:
    settings = security(certificates, "sensor")
    with (
        pytest.raises(ConnectionRefused, match="for another address"),
        Publisher("localhost", broker, id="sensor", security=settings),
    ):
        pass


def test_client_certificate_is_required_and_accepted(
    certificates: SiteCertificates, tmp_path: Path
) -> None:
    with secure_mosquitto(tmp_path, certificates, PASSWORDS, client_certificates=True) as broker:
        certificate, key = certificates.client("sensor")
        settings = security(certificates, "sensor")
        with pytest.raises(ConnectionRefused):
            publish(broker, settings)
        publish(broker, replace(settings, certificate_file=certificate, key_file=key))


def test_command_reads_the_password_from_a_file(
    broker: int, certificates: SiteCertificates, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORDS["sensor"] + "\n")
    secret.chmod(0o600)
    arguments = ["smoke/1", "-m", "x", "-q", "1", f"--broker=127.0.0.1:{broker}"]
    arguments += [f"--mqtt-ca={certificates.ca}", "--mqtt-user=sensor"]
    result = CliRunner().invoke(pub, [*arguments, f"--mqtt-password-file={secret}"])
    assert result.exit_code == 0, result.output
    secret.write_text("wrong\n")
    result = CliRunner().invoke(pub, [*arguments, f"--mqtt-password-file={secret}"])
    assert result.exit_code == 2
    assert "Not authorized" in result.output


def test_token_is_the_password_only_over_tls() -> None:
    assert MqttSecurity().with_default_credentials("crew", "fdx_1").password == "fdx_1"  # noqa: S105
    assert MqttSecurity(tls=False).with_default_credentials("crew", "fdx_1").password is None
    assert "secret" not in repr(MqttSecurity(user="crew", password="secret"))  # noqa: S106
